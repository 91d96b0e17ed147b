"""An AMD SMI without a GPU: those of its functions that `tftune_amd` calls, over the numbers in FAKE_AMD.

FAKE_AMD is a JSON object that a test sets: `cards` is how many there are, `watts` what each takes, `pid` who computes
on the first, and `driver` whether there is one.
"""

import enum
import json
import os
import time


class AmdSmiException(Exception):  # noqa: N818  # its name in the library
    """The library's own error."""


class AmdSmiClkType(enum.Enum):
    GFX = 0


class AmdSmiTemperatureType(enum.Enum):
    HOTSPOT = 1


class AmdSmiTemperatureMetric(enum.Enum):
    CURRENT = 0


def _told(name, otherwise):
    return json.loads(os.environ.get("FAKE_AMD", "{}")).get(name, otherwise)


def amdsmi_init():
    if not _told("driver", 1):
        raise AmdSmiException("no amdgpu module")


def amdsmi_get_processor_handles():
    return list(range(_told("cards", 1)))


def amdsmi_get_gpu_asic_info(card):
    return {
        "market_name": "AMD Instinct Fake 300",
        "asic_serial": f"0xAAAA{card + 1:012X}",
        "target_graphics_version": "gfx942",
    }


def amdsmi_get_gpu_driver_info(_):
    return {"driver_version": "6.12.12"}


def amdsmi_get_gpu_vram_usage(_):
    return {"vram_total": 196608, "vram_used": 300}


def amdsmi_get_power_cap_info(_):
    return {"power_cap": 750_000_000}


def amdsmi_get_power_info(_):
    return {"average_socket_power": _told("watts", 300)}


def amdsmi_get_clock_info(_card, _type):
    return {"clk": 1900, "max_clk": 2100}


def amdsmi_get_temp_metric(*_):
    return 51


def amdsmi_get_gpu_process_list(card):
    pid = _told("pid", 0)
    return [{"pid": pid, "mem": 3 << 30}] if pid and card == 0 else []


def amdsmi_get_energy_count(_):
    return {"energy_accumulator": time.monotonic() * _told("watts", 300) * 1e6 / 15.3, "counter_resolution": 15.3}
