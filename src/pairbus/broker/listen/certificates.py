"""What the broker needs to speak TLS: a certificate that it is given, or one of its own with the CA to trust."""

import ipaddress
import os
import socket
import ssl
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pairbus.broker.config.options import TlsConfig
from pairbus.broker.store.files import make_directory
from pairbus.errors import OptionError

CA_LIFE: Final = timedelta(days=3650)
LIFE: Final = timedelta(days=397)
"""The longest that clients take of a server."""
RENEWED_BEFORE: Final = timedelta(days=30)
_BACKDATED: Final = timedelta(hours=1)
"""For clients whose clock is behind."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM.

    :ivar certificate: the server's, with those between it and its CA.
    :ivar ca: what a client is to trust; None: what it trusts anyway.
    """

    certificate: Path
    key: Path
    ca: Path | None = None


class Tls:
    """The TLS of a broker that runs: with a certificate that it was given, or with its own.

    :param data: where its own is kept; None: in a directory that goes with the broker.
    :ivar ca_file: what clients are to trust; None: what they trust anyway.
    """

    def __init__(self, config: TlsConfig, host: str, data: Path | None) -> None:
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        if config.certificate is not None and config.key is not None:
            files = Certificate(config.certificate, config.key)
        else:
            if data is None:
                self._directory = tempfile.TemporaryDirectory(prefix="pairbus-tls-")
                data = Path(self._directory.name)
            try:
                files = own_certificate(data / "tls", host)
            except OSError as error:
                raise OptionError("data", str(data), f"a directory in which files can be written ({error})") from None
        self.ca_file = None if files.ca is None else str(files.ca.absolute())
        self.context = server_context(files)

    def close(self) -> None:
        """Remove what goes with the broker."""
        if self._directory is not None:
            self._directory.cleanup()


def server_context(files: Certificate) -> ssl.SSLContext:
    """Return how to speak TLS, 1.2 at least, with a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for option, file in (("certificate", files.certificate), ("key", files.key)):
        try:
            text = file.read_bytes()
        except OSError as error:
            raise OptionError(option, str(file), f"a PEM file that can be read ({error.strerror})") from None
        if b"-----BEGIN " not in text:
            raise OptionError(
                option, str(file), "a file in PEM; openssl converts others: openssl x509 -in FILE -inform DER"
            )

    def no_password() -> str:
        raise OptionError("key", str(files.key), "a key without a password; openssl pkey -in FILE takes it off")

    try:
        context.load_cert_chain(files.certificate, files.key, no_password)
    except ssl.SSLError as error:
        why = (error.reason or str(error)).replace("_", " ").lower()
        valid = f"a certificate in PEM, its own first, of which {files.key} is the private key ({why})"
        raise OptionError("certificate", str(files.certificate), valid) from None
    return context


def own_certificate(directory: Path, host: str, now: datetime | None = None) -> Certificate:
    """Return a certificate for this machine that is kept in a directory; it is made, or made anew, when need be.

    It is good for localhost, for this machine's name and for a host that is listened on. The CA stays the same as long
    as it is valid, so that clients that trust it trust the next certificate too.

    :param now: the time; None: the machine's.
    """
    now = datetime.now(UTC) if now is None else now
    make_directory(directory)
    ca_file, ca_key_file = directory / "ca.pem", directory / "ca-key.pem"
    files = Certificate(directory / "server.pem", directory / "server-key.pem", ca_file)
    names = _names(host)
    ca, ca_key = _read(ca_file, ca_key_file)
    if ca is None or ca_key is None or not _is_valid(ca, now):
        ca, ca_key = _make_ca(now)
        _write(ca_key_file, _pem_of_key(ca_key), 0o600)
        _write(ca_file, _pem(ca), 0o644)
    mine, key = _read(files.certificate, files.key)
    if mine is None or key is None or not _is_valid(mine, now) or not _is_from(mine, ca) or _names_in(mine) != names:
        mine, key = _make(names, ca, ca_key, now)
        _write(files.key, _pem_of_key(key), 0o600)
        _write(files.certificate, _pem(mine) + _pem(ca), 0o644)
    return files


# --- certificates ------------------------------------------------------------------------------------------------


def _names(host: str) -> list[x509.GeneralName]:
    """Return what clients may call this machine."""
    names = dict.fromkeys(("localhost", socket.gethostname().lower(), "127.0.0.1", "::1", host.lower()))
    found: list[x509.GeneralName] = []
    for name in names:
        with suppress(ValueError):
            address = ipaddress.ip_address(name)
            if not address.is_unspecified:
                found.append(x509.IPAddress(address))
            continue
        found.append(x509.DNSName(name))
    return found


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - RENEWED_BEFORE


def _is_from(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names_in(certificate: x509.Certificate) -> Sequence[x509.GeneralName]:
    return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


def _builder(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _make_ca(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _called(f"pairbus broker on {socket.gethostname()}"[:64])
    usage = _usage(signs_certificates=True)
    builder = _builder(name, key, now, CA_LIFE).issuer_name(name).add_extension(usage, critical=True)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.sign(key, hashes.SHA256()), key


def _make(
    names: list[x509.GeneralName], ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    builder = (
        _builder(_called("localhost"), key, now, LIFE)
        .issuer_name(ca.subject)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(authority, critical=False)
    )
    return builder.sign(ca_key, hashes.SHA256()), key


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


# --- files -------------------------------------------------------------------------------------------------------


def _read(certificate: Path, key: Path) -> tuple[x509.Certificate | None, ec.EllipticCurvePrivateKey | None]:
    """Return what is there and belongs together; what cannot be read is made anew, for it is all our own."""
    try:
        made = x509.load_pem_x509_certificate(certificate.read_bytes())
        private = serialization.load_pem_private_key(key.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        return None, None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != made.public_key():
        return None, None
    return made, private


def _write(file: Path, data: bytes, mode: int) -> None:
    """Write a file so that it is either the old one or the new one, and never open to more than it should be."""
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:  # noqa: PTH123 (by mode)
        stream.write(data)
    unfinished.replace(file)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
