//! Groups of the overview by a label: chosen in the list, opened and closed with keys, and in a shared address.

use serde_json::json;

use super::browser::Browser;
use super::filter::rows;
use super::say;

/// Sites that the nodes are at, see `node`.
const SITES: usize = 20;
/// With more nodes than these, groups are closed at first (groups.js).
const FEW: usize = 100;

/// `many`: nodes of the page.
pub(crate) fn group_by_a_label(browser: &mut Browser, url: &str, many: usize) {
    let choose = "(() => {
        const [list, begun] = [document.getElementById('group'), performance.now()];
        list.dispatchEvent(new Event('pointerdown'));
        list.value = 'site';
        list.dispatchEvent(new Event('change'));
        return [...list.options].map((one) => one.value).join(' ') + `, offered after ${Math.round(performance.now() - begun)} ms`;
    })()";
    say(&format!("labels: {:?}", browser.value(choose)));
    browser.wait("nodes are grouped, and the groups are closed", &rows(SITES));
    assert_eq!(browser.value("location.hash"), Ok(json!("#?by:site")));
    assert_eq!(browser.value("document.getElementById('table').role"), Ok(json!("treegrid")));
    let counted =
        "/^▸ site=north-[0-9]+ [0-9,]+ nodes, ▲ [0-9,]+ down/.test(document.querySelector('.row.group').textContent)";
    assert_eq!(browser.value(counted), Ok(json!(true)), "a group says how many of its nodes are down");

    browser.value("document.getElementById('table').focus()").expect("a page");
    let chosen = |what: &str| format!("document.querySelector('.row.chosen')?.matches('{what}') === true");
    browser.key("Home");
    browser.wait("the first group is chosen", &chosen(".group[aria-expanded=false]"));
    browser.key("ArrowRight");
    browser.wait("a key opens it", &chosen(".group[aria-expanded=true]"));
    browser.key("ArrowDown");
    browser.wait("its first node is chosen", &chosen("[aria-level=\"2\"]"));
    browser.key("ArrowUp");
    browser.key("ArrowLeft");
    browser.wait("another key closes it", &rows(SITES));

    browser.go("about:blank");
    browser.go(&format!("{url}#?site=north-1%20by:site"));
    let of_site = (0..many).filter(|number| number % SITES == 1).count();
    browser.wait("a shared address groups", &rows(1 + if of_site <= FEW { of_site } else { 0 }));
    assert_eq!(browser.value("document.getElementById('group').value"), Ok(json!("site")));
    browser.value("location.hash = ''").expect("a page");
    browser.wait("all are shown without groups", &rows(many));
    assert_eq!(browser.value("document.getElementById('table').role"), Ok(json!("grid")));
}
