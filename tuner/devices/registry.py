"""The devices by name: those that come with tftune, and those that other packages bring.

Another package registers its own as an entry point of the group `tftune.devices`, such as
`mine = "package.module:DEVICE"`.
"""

from __future__ import annotations

from tuner.devices.device import Device
from tuner.plugins import Plugins

DEFAULT = "cpu"
_DEVICES: Plugins[Device] = Plugins(
    "device",
    group="tftune.devices",
    shipped={DEFAULT: "tuner.devices.cpu:DEVICE", "gpu": "tuner.devices.gpu:DEVICE"},
    has=("name", "check"),
    short={"cuda": "gpu"},
)


def names() -> list[str]:
    """Return the names of all devices, the default first."""
    return _DEVICES.names()


def find(name: str) -> Device:
    """Return the device of that name, such as `gpu:1`; raises BadInputError with the nearest names.

    The same where it is not there.
    """
    kind, separator, place = name.partition(":")
    device = _DEVICES.find(kind)
    if separator:
        device = device.at(place)
    device.check()
    return device
