//! `api-client`: a client of the Kubernetes API in a pod, as operators in Rust are: kube-rs as it is, with the
//! configuration that it finds there. For `e2e_local_api_clients`, in whose pods it runs.

use std::io::Write;
use std::pin::pin;

use anyhow::bail;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::core::ObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};

const USAGE: &str = "usage: api-client everyday | inform SELECTOR";

fn main() -> anyhow::Result<()> {
    // It fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    runtime.block_on(run(&words))
}

async fn run(words: &[&str]) -> anyhow::Result<()> {
    let client = Client::try_default().await?;
    match words {
        ["everyday"] => everyday(client).await,
        ["inform", selector] => {
            inform(client, selector).await;
            Ok(())
        }
        _ => bail!(USAGE),
    }
}

/// A line for the test that reads the output.
fn say(line: &str) {
    // Without a reader there is nothing to do.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Reads and writes once, and is refused what its account may not do.
async fn everyday(client: Client) -> anyhow::Result<()> {
    let pods = Api::<Pod>::default_namespaced(client.clone()).list(&ListParams::default()).await?;
    let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
    say(&format!("pods {}", names.join(" ")));
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("made-by-kube-rs".to_owned()), ..ObjectMeta::default() },
        data: Some([("n".to_owned(), "1".to_owned())].into()),
        ..ConfigMap::default()
    };
    maps.create(&PostParams::default(), &map).await?;
    say(&format!("n {}", number(&maps.get("made-by-kube-rs").await?)));
    match Api::<Node>::all(client).list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => say(&format!("nodes {}", status.code)),
        Err(error) => return Err(error.into()),
        Ok(_) => bail!("the nodes may be read"),
    }
    Ok(())
}

fn number(map: &ConfigMap) -> &str {
    map.data.as_ref().and_then(|data| data.get("n")).map_or("-", String::as_str)
}

/// Follows ConfigMaps until it is killed, and says each event, each list, and each error of the API.
async fn inform(client: Client, selector: &str) {
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let mut events = pin!(watcher(maps, watcher::Config::default().labels(selector)).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => say("clear"),
            Ok(Event::InitDone) => say("list"),
            Ok(Event::InitApply(map) | Event::Apply(map)) => say(&format!("apply {} {}", map.name_any(), number(&map))),
            Ok(Event::Delete(map)) => say(&format!("delete {}", map.name_any())),
            Err(watcher::Error::WatchError(status)) if status.code == 410 => say("gone"),
            Err(error) => say(&format!("error {error}")),
        }
    }
}
