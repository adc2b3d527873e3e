//! The built `vcuda-kubernetes cluster` with a self-made certificate, and a client that trusts it.

mod template_api;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::{Running, eventually, release_dir};

pub use template_api::TemplateApi;

/// Name that the certificates are for.
const NAME: &str = "vcuda-cluster.vcuda-system.svc";
/// Time limit for an immediate effect on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A certificate, with its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    chain: String,
    key: String,
}

impl Certificate {
    /// Makes one.
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        Self { chain: parameters.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    }

    /// A client that trusts this certificate alone.
    fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.chain.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    }
}

impl Default for Certificate {
    fn default() -> Self {
        Self::new()
    }
}

/// The running program, killed on drop.
#[derive(Debug)]
pub struct Cluster {
    folder: tempfile::TempDir,
    /// The process.
    pub running: Running,
    certificate: Certificate,
}

/// Reads what the server sent, without sending first what it no longer takes, as the stream's own `read` would.
fn read_to_end(
    stream: &mut StreamOwned<ClientConnection, TcpStream>,
    into: &mut Vec<u8>,
) -> Result<(), std::io::Error> {
    while stream.conn.read_tls(&mut stream.sock)? > 0 {
        stream.conn.process_new_packets().map_err(std::io::Error::other)?;
        match stream.conn.reader().read_to_end(into) {
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

impl Cluster {
    /// Starts it with this configuration, beside addresses and the certificate.
    pub fn start(configuration: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("vcuda-cluster-").tempdir().unwrap();
        let certificate = Certificate::new();
        fs::create_dir(folder.path().join("tls")).unwrap();
        let config = folder.path().join("cluster.toml");
        fs::write(&config, configuration).unwrap();
        write_pair(&folder.path().join("tls"), &certificate);
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(release_dir().join("vcuda-kubernetes"));
        command.arg("cluster");
        command
            .args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"])
            .arg("--certificate")
            .arg(folder.path().join("tls"))
            .arg("--config")
            .arg(&config)
            .env_clear()
            // As in a pod, which the chart gives no token if it asks no API server.
            .env("KUBERNETES_SERVICE_HOST", "192.0.2.1")
            .stderr(Stdio::from(log));
        let cluster = Self { running: Running::start(&mut command), folder, certificate };
        eventually("the webhook is served", SOON, || cluster.log().contains("metrics at"));
        cluster
    }

    /// Its whole log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn address(&self, before: &str) -> SocketAddr {
        let log = self.log();
        let rest = log.split_once(before).unwrap_or_else(|| panic!("{log}")).1;
        rest.split('/').next().unwrap().parse().unwrap()
    }

    /// Address of the webhook.
    pub fn webhook(&self) -> SocketAddr {
        self.address("webhook at https://")
    }

    /// Replaces certificate and key, as an update of a mounted Secret does. Later requests trust the new one alone.
    pub fn renew(&mut self) {
        self.certificate = Certificate::new();
        self.replace_files(&self.certificate);
    }

    /// Replaces the files alone.
    pub fn replace_files(&self, certificate: &Certificate) {
        write_pair(&self.folder.path().join("tls"), certificate);
    }

    /// Replaces the key alone, by one of another certificate.
    pub fn break_key(&self) {
        fs::write(self.folder.path().join("tls/tls.key"), Certificate::new().key).unwrap();
    }

    /// Page of metrics or health.
    pub fn page(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address("metrics at http://")).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Posts a body; returns status and body of the answer.
    ///
    /// # Errors
    /// TLS or the connection failed.
    pub fn post(&self, path: &str, body: &[u8]) -> Result<(u16, String), std::io::Error> {
        self.request("POST", path, body)
    }

    /// As [`Cluster::post`], with another method.
    pub fn request(&self, method: &str, path: &str, body: &[u8]) -> Result<(u16, String), std::io::Error> {
        let name = ServerName::try_from(NAME).unwrap();
        let client = ClientConnection::new(self.certificate.client(), name).unwrap();
        let stream = TcpStream::connect(self.webhook())?;
        stream.set_read_timeout(Some(SOON))?;
        let mut stream = StreamOwned::new(client, stream);
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        )?;
        // A body that is too large is refused before all of it was sent.
        let sent = stream.write_all(body).and_then(|()| stream.flush());
        let mut answer = Vec::new();
        let read = read_to_end(&mut stream, &mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let Some((head, body)) = answer.split_once("\r\n\r\n") else {
            sent.and(read)?;
            return Err(std::io::Error::other(format!("no answer: {answer:?}")));
        };
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Ok((status, body.to_owned()))
    }

    /// The answer to a review of this object, a pod unless it says another kind: its `response`.
    pub fn review(&self, path: &str, namespace: &str, object: &Value, is_dry_run: bool) -> Value {
        let kind = object["kind"].as_str().unwrap_or("Pod");
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": {"group": "", "version": "v1", "kind": kind},
                "operation": "CREATE", "namespace": namespace, "object": object, "oldObject": null, "dryRun": is_dry_run, "options": {},
                "userInfo": {"username": "admin"},
            },
        });
        let (status, body) = self.post(path, review.to_string().as_bytes()).unwrap();
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["kind"], "AdmissionReview", "{answer}");
        let response = answer["response"].clone();
        assert_eq!(response["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002", "{answer}");
        response
    }

    /// The pod as the webhook makes it; or its refusal.
    ///
    /// # Errors
    /// The sentence of the refusal.
    pub fn mutated(&self, namespace: &str, pod: &Value) -> Result<Value, String> {
        let response = self.review("/mutate", namespace, pod, false);
        if response["allowed"] != true {
            return Err(response["status"]["message"].as_str().unwrap().to_owned());
        }
        let mut made = pod.clone();
        if let Some(patch) = response["patch"].as_str() {
            assert_eq!(response["patchType"], "JSONPatch");
            let patch: json_patch::Patch = serde_json::from_slice(&from_base64(patch)).unwrap();
            json_patch::patch(&mut made, &patch).unwrap();
        }
        Ok(made)
    }
}

fn write_pair(folder: &std::path::Path, certificate: &Certificate) {
    fs::write(folder.join("tls.key"), &certificate.key).unwrap();
    fs::write(folder.join("tls.crt"), &certificate.chain).unwrap();
}

/// The bytes of a text in base64.
fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for digit in text.chars().filter(|digit| *digit != '=') {
        bits = (bits << 6) | u32::try_from(DIGITS.find(digit).unwrap()).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).unwrap());
        }
    }
    bytes
}
