"""Permission to use vendor extensions: facts X20 and X21 of Android 13's runtime."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from nnbridge.allowlist import (
    ALLOWLIST_VARIABLE,
    APP_PROCESSES,
    CLIENT_VARIABLE,
    DENY_ON_PRODUCT_VARIABLE,
    Client,
    extensions_allowed,
    parse_client,
    process_may_use_extensions,
    read_allowlist,
)
from nnbridge.errors import InputError

LISTED = frozenset({"/data/foo", "/vendor/foo", "/odm/foo", "/product/foo", "/system/allowlisted", "/foobar/foo", "com.foo"})


@pytest.mark.parametrize(
    ("binary", "on_product", "before_12", "since_12"),
    [
        ("", False, False, False),
        ("/foobar/foo", False, False, False),
        ("/data/foo", False, True, True),
        ("/vendor/foo", False, True, True),
        ("/odm/foo", False, True, True),
        ("/system/foo", False, False, False),
        ("/system/allowlisted", False, False, False),
        ("/product/foo", False, False, False),
        ("/product/foo", True, True, True),
        ("/product/foo_not_allowlisted", True, False, True),
        ("/odm/foo_not_allowlisted", False, False, True),
        ("/vendor/foo_not_allowlisted", False, False, True),
        ("/data/foo_not_allowlisted", False, False, True),
        ("/system/bin/foo", True, False, False),
    ],
)
def test_x20_x21_allowed_native_binaries(binary: str, on_product: bool, before_12: bool, since_12: bool) -> None:
    assert extensions_allowed(Client(binary), LISTED, on_product=on_product) is before_12
    assert extensions_allowed(Client(binary), on_product=on_product) is since_12


@pytest.mark.parametrize("binary", APP_PROCESSES)
@pytest.mark.parametrize(
    ("package", "system", "vendor", "product", "on_product", "before_12", "since_12"),
    [
        ("com.foo", False, False, False, False, True, True),
        ("com.foo", True, False, False, False, False, False),
        ("com.foo", True, True, False, False, True, True),
        ("com.foo", True, False, True, False, False, False),
        ("com.foo", True, False, True, True, True, True),
        ("com.foo2", True, False, True, True, False, True),
        ("com.foo2", False, False, False, False, False, True),
        ("com.foo2", True, True, False, False, False, True),
    ],
)
def test_x20_x21_allowed_apps(
    binary: str, package: str, system: bool, vendor: bool, product: bool, on_product: bool, before_12: bool, since_12: bool
) -> None:
    client = Client(binary, package, system, vendor, product)
    assert extensions_allowed(client, LISTED, on_product=on_product) is before_12
    assert extensions_allowed(client, on_product=on_product) is since_12
    elsewhere = Client("/system/bin/foo", package, system, vendor, product)
    assert not extensions_allowed(elsewhere, LISTED, on_product=on_product)


def test_x21_lines_that_are_neither_a_path_nor_a_package_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "nnapi_extensions_app_allowlist"
    file.write_text("/data/foo\n\n  com.foo.bar  \nnonsense\n# a comment.\n")
    with caplog.at_level(logging.ERROR):
        assert read_allowlist(file) == {"/data/foo", "com.foo.bar"}
    assert [f":{n}:" in record.getMessage() for n, record in zip((4, 5), caplog.records, strict=True)] == [True, True]


def test_x21_of_many_lines_that_are_ignored_some_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "nnapi_extensions_app_allowlist"
    file.write_text("\x1b[31m x\n" * 100_000 + "com.foo.bar\n" + "y" * 1000)
    with caplog.at_level(logging.ERROR):
        assert read_allowlist(file) == {"com.foo.bar"}
    assert len(caplog.records) == 21
    assert caplog.records[0].getMessage().endswith(":1: neither a path nor a package name: \\x1b[31m x")
    assert caplog.records[-1].getMessage().endswith(": 99981 other lines are neither")


def test_x21_an_allowlist_beyond_a_megabyte_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "nnapi_extensions_app_allowlist"
    file.write_text("a.b\n" * (1 << 18) + "c")
    with pytest.raises(InputError, match="found 1,048,577 bytes, more than the 1,048,576 that are read"):
        read_allowlist(file)


def test_x21_an_allowlist_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="allowlist"):
        read_allowlist(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("text", "client"),
    [
        ("/data/local/tmp/tool", Client("/data/local/tmp/tool")),
        ("com.foo", Client(APP_PROCESSES[0], "com.foo")),
        ("com.foo@data", Client(APP_PROCESSES[0], "com.foo")),
        ("com.foo@system", Client(APP_PROCESSES[0], "com.foo", system_app=True)),
        ("com.foo@vendor", Client(APP_PROCESSES[0], "com.foo", system_app=True, on_vendor_image=True)),
        ("com.foo@product", Client(APP_PROCESSES[0], "com.foo", system_app=True, on_product_image=True)),
    ],
)
def test_a_client_is_named_by_a_path_or_a_package(text: str, client: Client) -> None:
    assert parse_client(text) == client


@pytest.mark.parametrize("text", ["foo", "com.foo@moon", "@data"])
def test_a_client_that_cannot_be_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match=CLIENT_VARIABLE):
        parse_client(text)


def test_the_environment_says_who_this_process_stands_for(tmp_path: Path) -> None:
    file = tmp_path / "list"
    file.write_text("com.foo\n")
    assert process_may_use_extensions({})
    assert not process_may_use_extensions({ALLOWLIST_VARIABLE: str(file)})
    assert process_may_use_extensions({ALLOWLIST_VARIABLE: str(file), CLIENT_VARIABLE: "com.foo"})
    assert not process_may_use_extensions({CLIENT_VARIABLE: "/system/bin/tool"})
    assert process_may_use_extensions({CLIENT_VARIABLE: "com.foo@product"})
    assert not process_may_use_extensions({CLIENT_VARIABLE: "com.foo@product", DENY_ON_PRODUCT_VARIABLE: "1"})
