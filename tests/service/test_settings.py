"""Settings: options over environment over defaults, each fault named by the option it came from."""

import argparse

import pytest

from service.config import OPTIONS, Settings, SettingsError, add_options, read_settings


def read(*argv, **environ):
    parser = argparse.ArgumentParser()
    add_options(parser)
    return read_settings(parser.parse_args(["--threads", "1", *argv]), environ)


def test_the_defaults_are_those_of_the_contract():
    settings = read()
    assert (settings.state, settings.port, settings.load) == ("sqlite:///twinrank.db", 8080, "newest")
    assert (settings.max_body_bytes, settings.max_rows, settings.drain_seconds) == (8 * 2**20, 4096, 30)


def test_an_option_wins_over_its_variable():
    assert read("--port", "1", TWINRANK_PORT="2").port == 1
    assert read(TWINRANK_PORT="2").port == 2


@pytest.mark.parametrize("option", [option for option, *_ in OPTIONS])
def test_every_option_is_also_read_from_its_variable(option):
    variable = "TWINRANK_" + option.upper().replace("-", "_")
    parser = argparse.ArgumentParser()
    add_options(parser)
    odds = {"artifacts": "s3://bucket", "capture": "s3://bucket", "state": "mysql://x"}
    odd = odds.get(option, "nonsense!")
    if option == "host":
        assert read(TWINRANK_HOST="::1").host == "::1"
        return
    with pytest.raises(SettingsError, match="--state" if option == "state" else variable):
        read_settings(parser.parse_args(["--threads", "1"] if option != "threads" else []), {variable: odd})


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--port", "65536"], "--port: must be between"),
        (["--workers", "0"], "--workers: must be at least 1"),
        (["--max-rows", "x"], "--max-rows: 'x' is not a whole number"),
        (["--drain-seconds", "nan"], "--drain-seconds"),
        (["--queue-rows", "10"], r"--queue-rows: must be at least --max-rows \(4096\)"),
        (["--weights", "v1"], "--weights: 'v1' is not of the form"),
        (["--weights", "v1=1,v1=2"], "twice"),
        (["--weights", "v1=-1"], "--weights"),
        (["--weights", "v1=0"], "no version has weight"),
        (["--weights", "../v1=1"], "--weights"),
        (["--state", "sqlite://"], "--state"),
        (["--state", "twinrank.db"], "--state"),
        (["--state", "mysql://me@host/db"], "--state: what was given is not of the form sqlite:///FILE or postgresql:"),
        (["--load", "some"], "--load: 'some' is none of newest, all, none"),
        (["--gpu-memory-fraction", "0"], "--gpu-memory-fraction: must be more than 0"),
        (["--gpu-memory-fraction", "1.5"], "--gpu-memory-fraction: .* at most 1"),
        (["--precision", "int8"], "--precision: 'int8' is none of float32, tf32, bf16"),
        (["--precision-tolerance", "nan"], "--precision-tolerance: must be more than 0"),
    ],
)
def test_a_wrong_value_is_refused_by_the_options_name(argv, says):
    with pytest.raises(SettingsError, match=says):
        read(*argv)


@pytest.mark.parametrize(
    "argv",
    [
        ["--fallback", "default"],
        ["--artifacts", "s3://bucket/prefix"],
    ],
)
def test_what_is_not_built_yet_says_so(argv):
    with pytest.raises(SettingsError, match=f"^{argv[0]}: .*not built yet"):
        read(*argv)


def test_what_is_not_built_yet_is_taken_at_its_default():
    defaults = ["--fallback", "off"]
    assert read(*defaults) == read()


@pytest.mark.parametrize("url", ["postgresql://me:hush@host/db", "postgres://host/db"])
def test_postgresql_is_a_state_and_its_password_is_not_shown(url):
    settings = read("--state", url)
    assert settings.state == url
    assert "hush" not in repr(settings)


def test_weights_are_read_as_a_map():
    assert read("--weights", "v1=90, v2=10").weights == {"v1": 90.0, "v2": 10.0}


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_loopback_is_known_by_the_bound_address(host, loopback):
    assert Settings(host=host).loopback is loopback


def test_tokens_come_from_the_environment_and_are_never_shown():
    settings = read(TWINRANK_ADMIN_TOKEN="hush", TWINRANK_CLIENT_TOKEN="")
    assert (settings.admin_token, settings.client_token) == ("hush", None)
    assert "hush" not in repr(settings)


def test_op02_workers_times_threads_stay_within_the_allowed_cores():
    from service.scoring.device import allowed_cores

    for workers in (1, 2, 4):
        parser = argparse.ArgumentParser()
        add_options(parser)
        settings = read_settings(parser.parse_args(["--workers", str(workers)]), {})
        assert settings.threads == max(1, allowed_cores() // workers)


@pytest.mark.parametrize("budget", ["0", "-1", "inf", "nan"])
def test_a_budget_is_a_time(budget):
    with pytest.raises(SettingsError, match="--budget-ms"):
        read("--budget-ms", budget)
