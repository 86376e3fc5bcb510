//! CPU and memory of a real node and its pod on the page; a node that is not connected does not have them.

use sampan_tests::can_run;
use sampan_tests::manifest::{pod, shell};
use sampan_tests::ports::free_address;
use serde_json::json;

use super::api::Api;
use super::browser::Browser;
use super::{allow, alone, log_in, node, token};

#[test]
fn cpu_and_memory_are_shown_where_they_are_known() {
    // Another API may have no metrics.
    if !can_run() || std::env::var_os("TEST_KUBECONFIG").is_some() {
        return;
    }
    let alone = alone::enter();
    let Some(mut browser) = Browser::start() else { return };
    let page = free_address();
    let (_lan, cluster, edge) = alone::site(alone, "usage", &["--page", &page.to_string()]);
    let (mut api, namespace) = (Api::start(&cluster.kubectl), cluster.kubectl.namespace.clone());
    api.create("/api/v1/nodes", &node(0, "True"));
    // It always uses some CPU.
    let work = "while :; do sleep 0.1; done";
    cluster.kubectl.apply_all(&[pod("web", &edge.name, json!([shell("c", work)]))]);
    cluster.kubectl.wait_ready("web");
    let looker = token(&mut api, &namespace, "looker");
    allow(&mut api, &namespace, "looker");

    browser.go(&format!("https://{page}/"));
    log_in(&mut browser, &looker);
    let cell = |name: &str, at: usize| {
        format!(
            "[...document.querySelectorAll('.row')].find((row) => row.dataset.name === '{name}')?.children[{at}].textContent"
        )
    };
    browser.wait("the CPU of the node is shown", &format!("/^[0-9]+m$/.test({})", cell(&edge.name, 10)));
    let memory = browser.value(&format!("/^([0-9]+Mi)?$/.test({})", cell(&edge.name, 11)));
    assert_eq!(memory, Ok(json!(true)), "memory, where the kernel counts it");
    assert_eq!(
        browser.value(&cell("edge-00000", 10)),
        Ok(json!("")),
        "nothing is known of a node that is not connected"
    );
    let shown = "getComputedStyle(document.querySelectorAll('#head > *')[10]).display !== 'none'";
    assert_eq!(browser.value(shown), Ok(json!(true)), "the column is there");

    browser.value(&format!("location.hash = '{}'", edge.name)).expect("a page");
    browser.wait("the node's page has it", "/CPU [0-9]+m/.test(document.getElementById('used')?.textContent)");
    let of_pod =
        "[...document.querySelectorAll('#node td[data-title=CPU]')].some((cell) => /^[0-9]+m$/.test(cell.textContent))";
    browser.wait("and its pod's", of_pod);

    let asked = |end: &str| {
        let urls = browser.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        urls.filter(|event| event["params"]["request"]["url"].as_str().is_some_and(|url| url.contains(end))).count()
    };
    // Two or three times 30 s may have passed until the pod was measured.
    assert!((1..6).contains(&asked("/api/usage/")), "{} readings of nodes in view", asked("/api/usage/"));
    let of_node = format!("{}/usage", edge.name);
    assert!((1..6).contains(&asked(&of_node)), "{} readings of the node that is open", asked(&of_node));
}
