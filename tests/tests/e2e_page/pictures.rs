//! Takes the pictures of docs/page.md, for `./scripts/page-pictures`: light and dark, at a desk and on a phone. Times of day are moved so that
//! the pictures are always of the same morning; ages are what they are.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sampan_tests::can_run;
use sampan_tests::pictures::{DESK, PHONE};
use sampan_tests::ports::free_address;

use super::api::Api;
use super::browser::Browser;
use super::demo::{DOWN, SHOWN, WaterWorks};
use super::device::Page;
use super::{allow, log_in, token};

/// That morning, in milliseconds since 1970: 2026-03-02T09:40:00Z.
const MORNING: u128 = 1_772_444_400_000;
/// Time in which a page has drawn itself again for another window.
const DRAWN: Duration = Duration::from_millis(500);

/// Moves times back by SHIFT milliseconds where the page shows them as text (RFC 3339).
const DATES: &str = r"(() => {
    const moved = (date) => new Date(date.getTime() - SHIFT);
    const stamp = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g;
    const look = (node) => {
        if (node.nodeType !== Node.TEXT_NODE) return node.childNodes.forEach(look);
        const text = node.data.replace(stamp, (at) => moved(new Date(at)).toISOString().slice(0, 19) + 'Z');
        if (text !== node.data) node.data = text;
    };
    new MutationObserver((all) => all.forEach((one) => one.addedNodes.forEach(look)))
        .observe(document, { childList: true, subtree: true });
})();";

#[test]
#[ignore = "writes the pictures of the docs: ./scripts/page-pictures"]
fn pictures_of_the_docs_are_taken() {
    assert!(can_run(), "it needs root");
    let folder = PathBuf::from(std::env::var_os("PICTURES").expect("PICTURES names a folder"));
    let mut browser = Browser::start().expect("chromium is installed");
    let page = free_address();
    let mut site = WaterWorks::start(page, &folder.join("site"));
    // From now on, so that its timeline has what happens.
    let own = Page::start(site.gateway(SHOWN));
    site.live();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    browser.place("en-GB", "UTC");
    browser.run_first(&DATES.replace("SHIFT", &now.saturating_sub(MORNING).to_string()));

    let (mut api, url) = (Api::start(&site.cluster.kubectl), format!("https://{page}/"));
    let namespace = site.cluster.kubectl.namespace.clone();
    let looker = token(&mut api, &namespace, "looker");
    allow(&mut api, &namespace, "looker");
    browser.go(&url);
    log_in(&mut browser, &looker);
    let down = format!("row.dataset.name === '{DOWN}' && /down.*unknown/.test(row.textContent)");
    browser.wait("a node is down", &format!("[...document.querySelectorAll('.row')].some((row) => {down})"));
    shoot(&mut browser, &folder, "overview");
    browser.go(&format!("{url}#{SHOWN}"));
    let fails = "document.getElementById('node').textContent.includes('CrashLoopBackOff')";
    browser.wait("a pod fails", &format!("{fails} && document.querySelectorAll('#node svg rect').length > 0"));
    shoot(&mut browser, &folder, "node");
    browser.go(&format!("{url}#/jobs"));
    browser.wait("jobs are shown", "document.querySelectorAll('#jobs article').length === 2");
    shoot(&mut browser, &folder, "jobs");

    browser.go("about:blank");
    browser.go(&own.url);
    let devices = "document.getElementById('devices').textContent.includes('values taken')";
    browser.wait("devices are told", &format!("{devices} && document.querySelectorAll('#drawing rect').length > 0"));
    shoot(&mut browser, &folder, "device");
}

/// Writes `page-NAME.png` into the folder, and its variants `-dark`, `-phone` and `-phone-dark`.
fn shoot(browser: &mut Browser, folder: &Path, name: &str) {
    for (window, size) in [("", DESK), ("-phone", PHONE)] {
        browser.size(size, size == PHONE);
        for (theme, dark) in [("", false), ("-dark", true)] {
            browser.dark(dark);
            std::thread::sleep(DRAWN);
            // What has the keyboard's focus has a frame.
            browser.value("document.activeElement?.blur()").expect("a page");
            browser.screenshot(&folder.join(format!("page-{name}{window}{theme}.png")));
        }
    }
    browser.size(DESK, false);
}
