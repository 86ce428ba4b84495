//! The roots that certificates of others must lead to.

use std::fs;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::error::TlsError;

/// Where roots are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// In a file of PEM, which is read again when it changes.
    File(PathBuf),
    /// Here.
    Certificates(Vec<CertificateDer<'static>>),
}

impl From<PathBuf> for Roots {
    fn from(path: PathBuf) -> Roots {
        Roots::File(path)
    }
}

impl Roots {
    /// Reads those of the operating system, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name. What cannot be read is left
    /// out; an error if nothing is left.
    pub fn of_system() -> Result<Roots, TlsError> {
        let found = rustls_native_certs::load_native_certs();
        let mut known = RootCertStore::empty();
        // Systems carry roots that are too old for rustls.
        let is_usable = |root: &CertificateDer<'static>| known.add(root.clone()).is_ok();
        let usable: Vec<_> = found.certs.into_iter().filter(is_usable).collect();
        if usable.is_empty() {
            let why = found.errors.first().map_or_else(|| "none was found".to_owned(), ToString::to_string);
            return Err(TlsError::NoSystemRoots(why));
        }
        Ok(Roots::Certificates(usable))
    }

    /// Their certificates.
    pub(crate) fn read(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        match self {
            Roots::File(path) => {
                let pem = fs::read(path).map_err(|error| TlsError::Read(path.to_owned(), error))?;
                certificates(path, &pem)
            }
            Roots::Certificates(certificates) => Ok(certificates.clone()),
        }
    }

    /// What verifies with these certificates of theirs.
    pub(crate) fn store(&self, certificates: &[CertificateDer<'static>]) -> Result<RootCertStore, TlsError> {
        let mut store = RootCertStore::empty();
        for certificate in certificates {
            match (self, store.add(certificate.clone())) {
                (Roots::File(path), Err(error)) => return Err(TlsError::Certificate(path.to_owned(), error)),
                // Those of the system have been looked through.
                (Roots::Certificates(_), _) | (_, Ok(())) => {}
            }
        }
        Ok(store)
    }
}

/// The certificates of a file with this content.
pub(crate) fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all.map_err(|error| TlsError::Pem(path.to_owned(), error))? {
        none if none.is_empty() => Err(TlsError::NoCertificate(path.to_owned())),
        some => Ok(some),
    }
}
