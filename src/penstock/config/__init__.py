"""One `Settings` for the whole server, filled from defaults, preset, file, environment and flags.

Each room declares its own settings; here they become one table of dotted keys such as `mqtt.port`.
Later sources win: defaults, preset, file, environment, flags. Whatever is wrong is an `InvalidConfig`
that names the key and where its value came from. Nobody else looks at the environment, and nothing
here opens a port or a file other than the configuration file.
"""

from penstock.config.load import Loaded, load
from penstock.config.reloading import Change, Reload, Reloading, compare, reload_of
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
