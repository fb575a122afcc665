"""One `Settings` for the whole server, from defaults, preset, file, environment and flags.

Each room declares its own settings; here they become one table of dotted keys such as `mqtt.port`. Later
sources override earlier ones: defaults, preset, file, environment, flags. Every error is an `InvalidConfig`
that names the key and the origin of its value. Only this package reads the environment, and it opens no port
and no file other than the configuration file.
"""

from penstock.config.load import Loaded, load
from penstock.config.reload import Change, Reload, Reloading, compare, reload_of
from penstock.config.settings import LoggingSettings, Settings, core_settings
from penstock.config.sources import PRESETS

__all__ = [
    "PRESETS",
    "Change",
    "Loaded",
    "LoggingSettings",
    "Reload",
    "Reloading",
    "Settings",
    "compare",
    "core_settings",
    "load",
    "reload_of",
]
