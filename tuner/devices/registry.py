"""The devices by name: those that come with tftune, and those that other packages bring.

Another package registers its own as an entry point of the group `tftune.devices`, such as
`mine = "package.module:DEVICE"`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tuner.devices.device import Device
from tuner.plugins import Plugins

DEFAULT = "cpu"
_DEVICES: Plugins[Device] = Plugins(
    "device",
    group="tftune.devices",
    shipped={DEFAULT: "tuner.devices.cpu:DEVICE", "gpu": "tuner.devices.nvidia:DEVICE"},
    has=("name", "check"),
    short={"cuda": "gpu"},
)
names = _DEVICES.names
"""Return the names of all devices, the default first."""


def all_devices() -> Iterator[Device]:
    """Yield those that can be loaded, each at its first place, whether it is there or not."""
    yield from _DEVICES


def hiding(besides: str = "") -> dict[str, str]:
    """Return the variables by which a process sees no device of its own, but for the one that is shown by another."""
    return {each.visible: "-1" for each in _DEVICES if each.visible not in ("", besides)}


def kinds() -> list[str]:
    """Return the kinds of all devices, the default first."""
    return list(dict.fromkeys(each.kind for each in _DEVICES))


def named(name: str) -> Device:
    """Return the device of that name for its words, wherever it is; raises BadInputError with the nearest names."""
    return _DEVICES.find(name.partition(":")[0])


def find(name: str) -> Device:
    """Return the device of that name, such as `gpu:1`; raises BadInputError with the nearest names.

    The same where it is not there.
    """
    _, separator, place = name.partition(":")
    device = named(name)
    if separator:
        device = device.at(place)
    device.check()
    return device
