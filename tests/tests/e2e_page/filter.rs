//! The filter of the overview, by counters and in the address; and the views at the size of a phone.

use sampan_tests::pictures::PHONE;
use serde_json::json;

use super::browser::Browser;
use super::say;

/// Expression: the table has this number of nodes.
pub(crate) fn rows(count: usize) -> String {
    format!("document.getElementById('table').ariaRowCount === '{}'", count + 1)
}

pub(crate) fn filter_by_counter_and_address(browser: &mut Browser, url: &str, many: usize) {
    let of = |every: usize, rest: usize| (0..many).filter(|number| number % every == rest).count();
    let counter =
        "[...document.querySelectorAll('#summary button')].find((one) => one.textContent.endsWith('rolled back'))";
    browser.value(&format!("{counter}.click()")).expect("a counter");
    browser.wait("a counter filters", &rows(of(61, 3)));
    assert_eq!(browser.value("location.hash"), Ok(json!("#?is:rolledback")));
    assert_eq!(browser.value(&format!("{counter}.ariaPressed")), Ok(json!("true")));
    // Not north-10 to north-19.
    browser.go(&format!("{url}#?site=north-1"));
    browser.wait("a shared address filters by the whole label", &rows(of(20, 1)));
    assert_eq!(browser.value("document.getElementById('search').value"), Ok(json!("site=north-1")));
    let linked =
        "document.querySelector('.row a').getAttribute('href') === `#${document.querySelector('.row').dataset.name}`";
    assert_eq!(browser.value(linked), Ok(json!(true)), "a row is a link");
    let typed = "(() => {
        const [box, begun] = [document.getElementById('search'), performance.now()];
        box.value = 'north-1';
        box.dispatchEvent(new Event('input'));
        return Math.round(performance.now() - begun);
    })()";
    say(&format!("a filter took {:?} ms", browser.value(typed)));
    browser.value("location.hash = ''").expect("a page");
    browser.wait("all are shown", &rows(many));
}

/// Nothing is wider than the window, on a phone and with 320 pixels (WCAG 2.2, 1.4.10).
pub(crate) fn fit_a_phone(browser: &mut Browser) {
    for size in [PHONE, (320, PHONE.1)] {
        browser.size(size, true);
        fit(browser);
    }
    browser.value("location.hash = ''").expect("a page");
    browser.size((1280, 640), false);
    browser.wait("all are shown at a desk", "document.getElementById('table').ariaRowCount > 3");
}

fn fit(browser: &mut Browser) {
    for (hash, shown, id) in [
        ("", "getComputedStyle(document.getElementById('table')).getPropertyValue('--row').trim() === '52px'", "table"),
        ("?by:site", "document.getElementById('table').role === 'treegrid'", "table"),
        ("edge-00003", "document.querySelectorAll('#node svg rect').length > 0", "node"),
        ("/pods", "document.querySelectorAll('#pods tbody tr').length === 3", "pods"),
        ("/jobs", "document.querySelector('#jobs h2') !== null", "jobs"),
        ("/devices", "document.querySelectorAll('#devices tbody tr').length === 3", "devices"),
    ] {
        browser.value(&format!("location.hash = '{hash}'")).expect("a page");
        browser.wait("the view is shown", shown);
        let wide = format!(
            "[document.documentElement, document.getElementById('{id}')].map((one) => one.scrollWidth - one.clientWidth)"
        );
        assert_eq!(browser.value(&wide), Ok(json!([0, 0])), "{id} needs no scrolling sideways");
    }
}
