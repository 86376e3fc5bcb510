//! A real registry on loopback, filled by skopeo with images of the host's busybox.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The password is `secret`; a file, because making a bcrypt hash needs another tool.
const HTPASSWD: &str = "user:$2b$05$l1afwYR8GhB6WejrODJ9O.1VdARFYaLmp0N.rnWE2eLFbamUsQHjW\n";

pub(crate) struct Registry {
    child: Child,
    pub(crate) address: String,
    temp: tempfile::TempDir,
    login: bool,
}

/// Whether the tools of these tests exist; prints why a test is skipped.
pub(crate) fn tools() -> bool {
    let have = |tool: &str| Command::new("which").arg(tool).stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    let missing: Vec<_> = ["docker-registry", "skopeo", "busybox"].into_iter().filter(|tool| !have(tool)).collect();
    let root = nix::unistd::geteuid().is_root();
    if !missing.is_empty() || !root {
        eprintln!(
            "skipped: needs root and {}",
            if missing.is_empty() { "nothing else".into() } else { missing.join(", ") }
        );
    }
    missing.is_empty() && root
}

impl Registry {
    pub(crate) fn start() -> Self {
        Self::with("", false)
    }

    pub(crate) fn with_login() -> Self {
        Self::with("auth:\n  htpasswd: {realm: test, path: HTPASSWD}\n", true)
    }

    /// Serves TLS with a certificate for 127.0.0.1.
    pub(crate) fn with_tls(certificate: &Path, key: &Path) -> Self {
        let tls = format!("  tls: {{certificate: {}, key: {}}}\n", certificate.display(), key.display());
        Self::with(&tls, false)
    }

    fn with(extra: &str, login: bool) -> Self {
        let temp = tempfile::Builder::new().prefix("image-registry-").tempdir().unwrap();
        let htpasswd = temp.path().join("htpasswd");
        fs::write(&htpasswd, HTPASSWD).unwrap();
        let address = free_address();
        let config = temp.path().join("config.yml");
        let data = temp.path().join("data");
        fs::write(
            &config,
            format!(
                "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n\
                 storage: {{filesystem: {{rootdirectory: {}}}}}\nhttp:\n  addr: {address}\n{}",
                data.display(),
                extra.replace("HTPASSWD", &htpasswd.display().to_string())
            ),
        )
        .unwrap();
        let mut command = Command::new("docker-registry");
        command
            .arg("serve")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .env("OTEL_TRACES_EXPORTER", "none");
        let child = command.spawn().unwrap();
        let registry = Self { child, address: address.to_string(), temp, login };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "the registry does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        registry
    }

    pub(crate) fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Copies an archive into the registry, with more arguments for skopeo.
    pub(crate) fn push(&self, source: &str, name: &str, more: &[&str]) {
        let mut command = Command::new("skopeo");
        command.args(["--insecure-policy", "copy", "--dest-tls-verify=false", "--quiet"]).args(more);
        if self.login {
            command.args(["--dest-creds", "user:secret"]);
        }
        let output = command.arg(source).arg(format!("docker://{}", self.image(name))).output().unwrap();
        assert!(output.status.success(), "skopeo: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.temp.path().join("data")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A docker archive of busybox, made once per test run.
pub(crate) fn busybox() -> &'static Path {
    static ARCHIVE: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    ARCHIVE.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("busybox.tar");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/lib/make-busybox-image.sh");
        assert!(Command::new(script).arg(&path).status().unwrap().success());
        path
    })
}

/// Source of busybox for skopeo.
pub(crate) fn busybox_source() -> String {
    format!("docker-archive:{}", busybox().display())
}

pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
