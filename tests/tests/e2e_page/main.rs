//! The page with all nodes, in a real browser: who is let in, what is shown of thousands of nodes, keys, what hostile text does, and what
//! is said when the bridge is away; and the page of a single node. `TEST_PAGE_NODES` says how many nodes. The pictures of the docs are of
//! another site (`pictures`).

mod alone;
mod api;
mod browser;
mod demo;
mod device;
mod devices;
mod filter;
mod groups;
mod pictures;
mod pods;
mod timeline;
mod usage;

use std::io::Write;
use std::time::Instant;

use sampan_tests::Cluster;
use sampan_tests::ports::free_address;
use serde_json::{Value, json};

use api::Api;
use browser::Browser;
use devices::devices_are_listed;
use filter::{filter_by_counter_and_address, fit_a_phone, rows};
use groups::group_by_a_label;
use pods::pods_are_searched;
use timeline::zoom_with_keys;

/// What would run if it were markup: it renames the page.
const HOSTILE: &str = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>";

/// Name of the site.
const SITE: &str = "Plant <1> & 2";

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn node(number: usize, ready: &str) -> Value {
    let (name, condition) = (format!("edge-{number:05}"), |kind: &str, status: &str, message: &str| {
        json!({"type": kind, "status": status, "reason": kind, "message": message,
            "lastTransitionTime": "2026-03-01T10:00:00Z"})
    });
    let bad = |every: usize, yes: &'static str, no: &'static str| if number % every == 3 { yes } else { no };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "sampan.dev/bridged": "true", "node-role.kubernetes.io/edge": "", "kubernetes.io/arch": "arm64", "site": format!("north-{}", number % 20)}},
        "status": {
            "conditions": [
                condition("Ready", ready, "the node is ready"),
                condition("DiskPressure", bad(41, "True", "False"), "the disk"),
                condition("ClockSynchronized", "True", "the clock follows a time source"),
                condition("StorageHealthy", bad(97, "False", "True"), HOSTILE),
                condition("Upgraded", bad(61, "False", "True"), "version 2 is in force"),
            ],
            "nodeInfo": {"kubeletVersion": "v1.36.0-sampan", "architecture": "arm64", "kernelVersion": "6.1.0",
                "osImage": "Debian", "containerRuntimeVersion": "runc://1.1", "bootID": "", "machineID": "",
                "systemUUID": "", "operatingSystem": "linux", "kubeProxyVersion": ""},
        },
    })
}

/// A token of a new service account.
fn token(api: &mut Api, namespace: &str, name: &str) -> String {
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    api.create(&accounts, &json!({"metadata": {"name": name}}));
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let made = api.create(&format!("{accounts}/{name}/token"), &request);
    made["status"]["token"].as_str().expect("a token").to_owned()
}

/// Lets a service account list what the page shows.
fn allow(api: &mut Api, namespace: &str, name: &str) {
    let (roles, role) = ("/apis/rbac.authorization.k8s.io/v1", format!("looks-{namespace}"));
    let rules = json!([
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
        {"apiGroups": ["devices.kubeedge.io"], "resources": ["devices", "devicestatuses"], "verbs": ["list"]},
        {"apiGroups": ["metrics.k8s.io"], "resources": ["nodes", "pods"], "verbs": ["list"]},
    ]);
    api.create(&format!("{roles}/clusterroles"), &json!({"metadata": {"name": role}, "rules": rules}));
    let binding = json!({"metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]});
    api.create(&format!("{roles}/clusterrolebindings"), &binding);
}

fn log_in(browser: &mut Browser, token: &str) {
    browser.wait("the form is there", "document.activeElement.id === 'token'");
    browser.text(token);
    browser.key("Enter");
}

#[test]
fn people_see_their_nodes_on_the_page() {
    alone::enter();
    let Some(mut browser) = Browser::start() else { return };
    let page = free_address();
    let mut cluster = Cluster::start_with("page", &["--page", &page.to_string(), "--page-title", SITE]);
    let (mut api, url) = (Api::start(&cluster.kubectl), format!("https://{page}/"));
    let namespace = cluster.kubectl.namespace.clone();

    let (stranger, looker) = (token(&mut api, &namespace, "stranger"), token(&mut api, &namespace, "looker"));
    allow(&mut api, &namespace, "looker");
    browser.go(&url);
    log_in(&mut browser, "nonsense");
    browser.wait("nonsense is no token", "document.body.innerText.includes('does not know this token')");
    log_in(&mut browser, &stranger);
    browser.wait("not everybody may look", "document.body.innerText.includes('may not list nodes')");
    browser.go(&format!("{url}#token={looker}"));
    browser.wait("a login link logs in", "document.getElementById('empty')?.hidden === false");
    assert_eq!(browser.value("location.hash"), Ok(json!("")), "the token does not stay to be read");
    assert_eq!(browser.value("document.cookie"), Ok(json!("")), "no script sees the cookie");

    let many: usize = std::env::var("TEST_PAGE_NODES").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    for number in 0..many {
        api.create("/api/v1/nodes", &node(number, if number % 53 == 5 { "False" } else { "True" }));
    }
    let shown = format!("document.getElementById('summary').textContent.startsWith('{} nodes')", thousands(many));
    browser.wait("all nodes are shown", &shown);
    browser.go("about:blank");
    browser.go(&url);
    browser.wait("and after it was opened again", &shown);
    let lines = browser.value("document.querySelectorAll('.row').length").expect("a number");
    assert!(lines.as_u64().is_some_and(|lines| (10..100).contains(&lines)), "{lines} rows are in the document");
    let paint = "performance.getEntriesByType('paint').map((one) => Math.round(one.startTime)).join(', ')";
    let rows = "Math.round(performance.getEntriesByName('rows')[0].startTime)";
    let (paint, rows) = (browser.value(paint), browser.value(rows));
    say(&format!("{many} nodes: painted after {paint:?} ms, rows after {rows:?} ms"));
    let (bytes, packing) = streamed(&browser);
    say(&format!("which took {bytes} bytes, packed as {packing}"));
    assert_eq!(packing, "gzip");

    follow_a_change(&mut browser, &mut api);
    filter_by_counter_and_address(&mut browser, &url, many);
    group_by_a_label(&mut browser, &url, many);
    keys_and_one_node(&mut browser);
    devices_are_listed(&mut browser, &mut api, &cluster.kubectl);
    pods_are_searched(&mut browser, &mut api, &namespace, &url);
    fit_a_phone(&mut browser);

    assert_quiet(&browser, &url);

    cluster.kill_bridge();
    browser.wait("the loss is told", "document.getElementById('lost').textContent.includes('is lost')");
    browser.wait("with the age of what is shown", "/is [0-9]+s old/.test(document.getElementById('lost').textContent)");
    assert_eq!(browser.value("document.querySelectorAll('.row').length > 9"), Ok(json!(true)), "and all stays");
    cluster.start_bridge();
    // Sessions are in memory alone.
    log_in(&mut browser, &looker);
    browser.wait("all nodes are shown again", &shown);
}

/// No other host was asked, and no rule of the page was broken.
fn assert_quiet(browser: &Browser, url: &str) {
    for event in &browser.events {
        let asked =
            event["params"]["request"]["url"].as_str().filter(|_| event["method"] == "Network.requestWillBeSent");
        // The browser's own page for a changed network has a picture in its text.
        let is_quiet = |asked: &str| asked.starts_with(url) || asked == "about:blank" || asked.starts_with("data:");
        assert!(asked.is_none_or(is_quiet), "{asked:?}");
        let entry = &event["params"]["entry"]["text"];
        assert!(!entry.to_string().contains("Content Security Policy"), "{entry}");
        assert!(event["method"] != "Runtime.exceptionThrown", "{event}");
    }
}

/// Bytes of streams as they came, and how the last one was packed.
fn streamed(browser: &Browser) -> (u64, Value) {
    let of_streams = |event: &&Value| {
        event["method"] == "Network.responseReceived"
            && event["params"]["response"]["url"].as_str().is_some_and(|url| url.ends_with("/api/stream"))
    };
    let last = browser.events.iter().rfind(of_streams).cloned().unwrap_or_default();
    let parts = browser.events.iter().filter(|event| {
        event["method"] == "Network.dataReceived" && event["params"]["requestId"] == last["params"]["requestId"]
    });
    let bytes = parts.map(|part| part["params"]["encodedDataLength"].as_u64().unwrap_or_default()).sum();
    (bytes, last["params"]["response"]["headers"]["content-encoding"].clone())
}

/// How `toLocaleString` writes it.
fn thousands(number: usize) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
}

/// Of a condition that no controller writes: these nodes do not report, which makes them Unknown after a while.
fn follow_a_change(browser: &mut Browser, api: &mut Api) {
    browser.value("location.hash = '#?edge-00001'").expect("a page");
    browser.wait("it is the only one", &rows(1));
    let cell = "[...document.querySelectorAll('.row')].find((row) => row.dataset.name === 'edge-00001').children[7].textContent";
    for (status, word) in [("False", "trouble"), ("True", "healthy")] {
        let patch = json!({"status": {"conditions": [{"type": "StorageHealthy", "status": status}]}});
        let path = "/api/v1/nodes/edge-00001/status";
        let (code, answer) = api.ask("PATCH", path, "application/strategic-merge-patch+json", &patch);
        assert_eq!(code, 200, "{answer}");
        let begun = Instant::now();
        browser.wait("the change is shown", &format!("{cell}.slice(2) === '{word}'"));
        say(&format!("a change of one node was shown after {:?}", begun.elapsed()));
    }
    browser.value("location.hash = ''").expect("a page");
    browser.wait("the filter is gone", "document.getElementById('search').value === ''");
}

fn keys_and_one_node(browser: &mut Browser) {
    browser.key("/");
    browser.wait("the search has the focus", "document.activeElement.id === 'search'");
    browser.text("site=north-3 edge-00003");
    browser.wait("one node is found", "document.getElementById('table').ariaRowCount === '2'");
    browser.key("ArrowDown");
    browser.wait("it is chosen", "document.querySelector('.chosen')?.dataset.name === 'edge-00003'");
    browser.key("Enter");
    browser.wait("it is open", "document.querySelectorAll('#node svg rect').length > 0");
    let hostile = format!("document.getElementById('node').textContent.includes({})", json!(HOSTILE));
    assert_eq!(browser.value(&hostile), Ok(json!(true)), "text stays text");
    assert_eq!(browser.value("document.images.length + document.scripts.length"), Ok(json!(1)));
    zoom_with_keys(browser);
    // What would rename it would have done so by now.
    assert_eq!(browser.value("document.title"), Ok(json!(format!("edge-00003 · {SITE} · Sampan"))));
    browser.key("Escape");
    browser.wait("back", "!document.getElementById('overview').hidden && document.activeElement.id === 'table'");
    browser.key("/");
    browser.wait("the search has the focus again", "document.activeElement.id === 'search'");
    browser.key("Escape");
    browser.wait("all are there again", "document.getElementById('table').ariaRowCount > 3");
}
