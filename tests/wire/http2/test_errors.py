"""The numbers of the standard: error codes, frame types, flags and settings are those of another library."""

from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hyperframe.frame import FRAMES, HeadersFrame, PingFrame

from penstock.wire.http2 import ErrorCode
from penstock.wire.http2.frames import Flag, FrameType, Setting


def test_error_codes_have_the_numbers_of_the_standard() -> None:
    assert {code.name: code.value for code in ErrorCode} == {code.name: code.value for code in ErrorCodes}


def test_frame_types_and_flags_have_the_numbers_of_the_standard() -> None:
    for kind in FrameType:
        assert FRAMES[kind].__name__.removesuffix("Frame").upper() == kind.name.replace("_", "")
    for flag in (*HeadersFrame.defined_flags, *PingFrame.defined_flags):
        assert Flag[flag.name] == flag.bit


def test_settings_have_the_numbers_of_the_standard() -> None:
    for setting in Setting:
        assert SettingCodes[setting.name].value == setting.value
