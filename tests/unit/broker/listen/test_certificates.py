"""The broker's certificates: its own, and those it is given."""

import socket
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from pairbus.broker.config.options import TlsConfig
from pairbus.broker.listen.certificates import CA_LIFE, LIFE, Certificate, Tls, own_certificate, server_context
from pairbus.errors import OptionError

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def read(file: Path | None) -> x509.Certificate:
    assert file is not None
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_it_is_good_for_what_this_machine_is_called(tmp_path: Path) -> None:
    files = own_certificate(tmp_path / "tls", "192.0.2.7", NOW)
    names = read(files.certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"localhost", socket.gethostname().lower()}
    addresses = {ip_address(text) for text in ("127.0.0.1", "::1", "192.0.2.7")}
    assert set(names.get_values_for_type(x509.IPAddress)) == addresses
    server_context(files)


def test_private_keys_are_private(tmp_path: Path) -> None:
    own_certificate(tmp_path, "0.0.0.0", NOW)  # noqa: S104 (nobody listens)
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert {name: mode & 0o077 for name, mode in modes.items() if "key" in name} == {
        "ca-key.pem": 0,
        "server-key.pem": 0,
    }
    assert set(modes) == {"ca.pem", "ca-key.pem", "server.pem", "server-key.pem"}


@pytest.mark.parametrize(
    ("later", "host", "is_kept", "ca_is_kept"),
    [
        (timedelta(days=1), "127.0.0.1", True, True),
        (LIFE - timedelta(days=29), "127.0.0.1", False, True),
        (timedelta(days=1), "192.0.2.7", False, True),
        (-timedelta(days=1), "127.0.0.1", False, False),
        (CA_LIFE, "127.0.0.1", False, False),
    ],
)
def test_it_is_made_anew_when_it_is_no_longer_good(
    tmp_path: Path, later: timedelta, host: str, *, is_kept: bool, ca_is_kept: bool
) -> None:
    files = own_certificate(tmp_path, "127.0.0.1", NOW)
    before = read(files.certificate), read(files.ca)
    assert own_certificate(tmp_path, host, NOW + later) == files
    after = read(files.certificate), read(files.ca)
    assert (after[0] == before[0], after[1] == before[1]) == (is_kept, ca_is_kept)
    after[0].verify_directly_issued_by(after[1])


@pytest.mark.parametrize("name", ["ca.pem", "ca-key.pem", "server.pem", "server-key.pem"])
def test_what_is_damaged_is_made_anew(tmp_path: Path, name: str) -> None:
    files = own_certificate(tmp_path, "127.0.0.1", NOW)
    (tmp_path / name).write_text("damaged")
    assert own_certificate(tmp_path, "127.0.0.1", NOW) == files
    read(files.certificate).verify_directly_issued_by(read(files.ca))
    server_context(files)


def test_files_that_are_no_good_are_named_with_the_cure(tmp_path: Path) -> None:
    mine = own_certificate(tmp_path / "mine", "127.0.0.1")
    other = own_certificate(tmp_path / "other", "127.0.0.1")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    binary = tmp_path / "binary.der"
    binary.write_bytes(read(mine.certificate).public_bytes(serialization.Encoding.DER))
    locked = tmp_path / "locked.pem"
    key = serialization.load_pem_private_key(mine.key.read_bytes(), None)
    how = serialization.BestAvailableEncryption(b"secret")
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
    for certificate, private, says in (
        (tmp_path / "none.pem", mine.key, "certificate=.*none.pem.*No such file"),
        (tmp_path, mine.key, "certificate=.*Is a directory"),
        (mine.certificate, tmp_path / "none.pem", "key=.*none.pem.*No such file"),
        (binary, mine.key, "certificate=.*binary.der.*in PEM.*openssl"),
        (nonsense, mine.key, "certificate=.*nonsense.pem.*a certificate in PEM"),
        (mine.certificate, other.key, "certificate=.*server.pem.*key values mismatch"),
        (mine.certificate, locked, "key=.*locked.pem.*without a password"),
    ):
        with pytest.raises(OptionError, match=says):
            server_context(Certificate(certificate, private))


def test_a_certificate_goes_with_its_key() -> None:
    with pytest.raises(OptionError, match=r"key=None is not valid: .* certificate"):
        TlsConfig(certificate=Path("c.pem"))
    with pytest.raises(OptionError, match=r"certificate=None is not valid: .* key"):
        TlsConfig(key=Path("k.pem"))


def test_a_broker_that_keeps_nothing_keeps_no_certificate() -> None:
    tls = Tls(TlsConfig(), "127.0.0.1", None)
    assert tls.ca_file is not None
    assert Path(tls.ca_file).exists()
    assert tls.context.minimum_version == ssl.TLSVersion.TLSv1_2
    tls.close()
    assert not Path(tls.ca_file).exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "tls").write_text("in the way")
    with pytest.raises(OptionError, match=r"data=.*can be written"):
        Tls(TlsConfig(), "127.0.0.1", tmp_path)
