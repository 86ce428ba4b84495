//! Why files of certificates and keys cannot be used.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use rustls::pki_types::pem;
use rustls::server::VerifierBuilderError;

/// Why the files cannot be used.
#[derive(Debug)]
pub enum TlsError {
    /// One of them cannot be read.
    Read(PathBuf, io::Error),
    /// One of them is not PEM, or lacks the key.
    Pem(PathBuf, pem::Error),
    /// There is no certificate in this one.
    NoCertificate(PathBuf),
    /// The certificate in this one cannot be used, or not with its key.
    Certificate(PathBuf, rustls::Error),
    /// Those who connect must show certificates, and nothing says whose.
    NoRoots,
    /// The operating system has none that can be used.
    NoSystemRoots(String),
    /// The roots cannot be used to verify certificates of those who connect.
    Verifier(VerifierBuilderError),
    /// No version of TLS can be spoken.
    Versions(rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut wrong = |path: &Path, why: &dyn fmt::Display| write!(f, "{}: {why}", path.display());
        match self {
            TlsError::Read(path, error) => wrong(path, error),
            TlsError::Pem(path, error) => wrong(path, error),
            TlsError::NoCertificate(path) => wrong(path, &"it contains no certificate"),
            TlsError::Certificate(path, error) => wrong(path, error),
            TlsError::NoRoots => {
                f.write_str("clients must show certificates, but no roots are given that these could lead to")
            }
            TlsError::NoSystemRoots(why) => write!(f, "the system has no certificate authorities: {why}"),
            TlsError::Verifier(error) => error.fmt(f),
            TlsError::Versions(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TlsError {}
