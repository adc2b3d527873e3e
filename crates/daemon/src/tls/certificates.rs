//! The certificate of a server, from a folder as a Secret of Kubernetes is mounted: `tls.crt` and `tls.key`. It is read again
//! if the files change; a pair that cannot be used leaves the former one in place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use tracing::{info, warn};

/// Between two looks at the files. Kubelet brings a changed Secret within a minute or two.
const LOOK: Duration = Duration::from_secs(2);

/// A certificate that cannot be used.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("{}: {}", .0.display(), .1)]
    Unreadable(PathBuf, io::Error),
    /// A file is not PEM, or has no certificate or key.
    #[error("{}: {}", .0.display(), .1)]
    Pem(PathBuf, pem::Error),
    /// The key is another certificate's, or of a kind that is not supported.
    #[error("{}: certificate and key cannot be used together: {}", .0.display(), .1)]
    Pair(PathBuf, rustls::Error),
}

/// Bytes of both files.
type Files = (Vec<u8>, Vec<u8>);

/// The certificate of a server, as it is now.
#[derive(Debug)]
pub struct Certificates {
    folder: PathBuf,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<CertifiedKey>>,
    files: RwLock<Files>,
    problem: RwLock<Option<String>>,
}

impl Certificates {
    /// Reads the certificate in `folder`.
    pub fn read(folder: &Path) -> Result<Arc<Self>, CertificateError> {
        let provider = Arc::new(ring::default_provider());
        let files = read(folder)?;
        let current = pair(folder, &files, &provider)?;
        Ok(Arc::new(Self {
            folder: folder.to_owned(),
            provider,
            current: RwLock::new(Arc::new(current)),
            files: RwLock::new(files),
            problem: RwLock::default(),
        }))
    }

    /// Settings of a server that shows the certificate as it is at each handshake.
    pub fn server(self: &Arc<Self>) -> Result<Arc<ServerConfig>, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Shown(Arc::clone(self))));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Follows the files until it is dropped.
    pub async fn follow(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let looks = Arc::clone(&self);
            let _ = tokio::task::spawn_blocking(move || looks.look()).await;
        }
    }

    /// The reason why the files cannot be used as they are now.
    pub fn problem(&self) -> Option<String> {
        self.problem.read().clone()
    }

    fn look(&self) {
        let looked = read(&self.folder).and_then(|files| {
            if *self.files.read() != files {
                let current = pair(&self.folder, &files, &self.provider)?;
                *self.current.write() = Arc::new(current);
                *self.files.write() = files;
                info!(folder = %self.folder.display(), "a new certificate");
            }
            Ok(())
        });
        let problem = looked.err().map(|error| error.to_string());
        let mut known = self.problem.write();
        if *known != problem {
            if let Some(problem) = &problem {
                warn!("{problem}; the former certificate is used on");
            }
            *known = problem;
        }
    }
}

fn read(folder: &Path) -> Result<Files, CertificateError> {
    let bytes = |name: &str| {
        let path = folder.join(name);
        fs::read(&path).map_err(|error| CertificateError::Unreadable(path, error))
    };
    Ok((bytes("tls.crt")?, bytes("tls.key")?))
}

fn pair(
    folder: &Path,
    (chain, key): &Files,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, CertificateError> {
    let wrong = |name: &str| {
        let path = folder.join(name);
        |error| CertificateError::Pem(path, error)
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.and_then(|chain| match chain.is_empty() {
        true => Err(pem::Error::NoItemsFound),
        false => Ok(chain),
    });
    let key = PrivateKeyDer::from_pem_slice(key).map_err(wrong("tls.key"))?;
    CertifiedKey::from_der(chain.map_err(wrong("tls.crt"))?, key, provider)
        .map_err(|error| CertificateError::Pair(folder.to_owned(), error))
}

/// Shows each client the certificate as it is now.
#[derive(Debug)]
struct Shown(Arc<Certificates>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.current.read()))
    }
}
