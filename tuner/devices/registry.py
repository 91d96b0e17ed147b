"""The devices by name: those that come with tftune, and those that other packages bring.

Another package registers its own as an entry point of the group `tftune.devices`, such as
`mine = "package.module:DEVICE"`.
"""

from __future__ import annotations

from tuner.devices.device import Device
from tuner.plugins import Plugins

DEFAULT = "cpu"
_DEVICES: Plugins[Device] = Plugins(
    "device", group="tftune.devices", shipped={DEFAULT: "tuner.devices.cpu:DEVICE"}, has=("name", "check")
)


def names() -> list[str]:
    """Return the names of all devices, the default first."""
    return _DEVICES.names()


def find(name: str) -> Device:
    """Return the device of that name; raises BadInputError with the nearest names, or where it is not there."""
    device = _DEVICES.find(name)
    device.check()
    return device
