//! Shared state of all parts of the server: its configuration, the store, and caches.

pub(crate) mod access;
pub(crate) mod apart;
pub(crate) mod documents;
pub(crate) mod large;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod quota;
pub(crate) mod samples;
pub(crate) mod steps;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::auth::Authorizer;
use crate::auth::accounts::Accounts;
use crate::cel::Cel;
use crate::kinds::service::held::Held;
use crate::kinds::service::range::ServiceRange;
use crate::resource::catalogue::Registry;
use crate::storage::{Durable, Store};
use apimachinery::user::UserInfo;
use documents::Documents;
use kubelet_api::backend::KubeletBackend;
use large::LargeObjects;
use limits::Limits;
use quota::Quotas;
use samples::Samples;

/// How to open a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The SQLite file; created when absent.
    pub file: PathBuf,
    /// A damaged file is replaced by its copy.
    pub restore: bool,
    /// Bearer tokens and their users.
    pub tokens: Vec<(String, UserInfo)>,
    /// Watch history is kept at least this long...
    pub history: Duration,
    /// ...but never in more rows than this.
    pub history_rows: u64,
    /// ...and at most this many bytes of replaced states.
    pub history_bytes: u64,
    /// Interval of bookmarks in a watch that requested them.
    pub bookmark_interval: Duration,
    /// Maximum time between two counts of a quota.
    pub quota_resync: Duration,
    /// Signs service account tokens; without it pods get none.
    pub accounts: Option<Arc<Accounts>>,
    /// Where Services get their addresses from; without it they get none.
    pub services: Option<ServiceRange>,
    /// Command that evaluates validation rules of custom resources; without it definitions with rules are refused.
    pub cel_helper: Option<Vec<OsString>>,
    /// The longest life of a service account token, in seconds; without it as long as a TokenRequest asks for.
    pub token_life_max: Option<i64>,
    /// Default toleration, in seconds, of pods for a node that is not ready or silent; `None` for unlimited.
    pub toleration_seconds: Option<i64>,
}

impl Config {
    /// The usual settings on this file.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            restore: false,
            tokens: Vec::new(),
            // As long as Kubernetes keeps it at the least: there etcd is compacted every five minutes.
            history: Duration::from_secs(300),
            history_rows: 50_000,
            history_bytes: 128 << 20,
            bookmark_interval: Duration::from_secs(60),
            // K8s pkg/controller/resourcequota/config/v1alpha1/defaults.go.
            quota_resync: Duration::from_secs(300),
            accounts: None,
            services: None,
            cel_helper: None,
            token_life_max: None,
            toleration_seconds: Some(300),
        }
    }
}

/// The server, for the code that handles its requests.
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) store: Mutex<Store>,
    pub(crate) durable: Durable,
    pub(crate) quotas: Quotas,
    pub(crate) registry: Registry,
    pub(crate) backend: OnceLock<Arc<dyn KubeletBackend>>,
    pub(crate) samples: Samples,
    pub(crate) authorizer: Authorizer,
    /// Addresses and ports of Services.
    pub(crate) held: Held,
    pub(crate) large: LargeObjects,
    pub(crate) limits: Limits,
    pub(crate) documents: Documents,
    pub(crate) cel: Cel,
}

impl Inner {
    /// The storage. Held only across synchronous code, so a request is atomic.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
