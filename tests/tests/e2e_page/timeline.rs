//! The timeline of a node: keys and buttons choose a time and zoom, and hovering tells the state.

use serde_json::{Value, json};

use super::browser::Browser;

fn number(browser: &mut Browser, name: &str) -> i64 {
    let value = browser.value(&format!("Number(document.getElementById('time').getAttribute('aria-value{name}'))"));
    value.ok().as_ref().and_then(Value::as_i64).expect("a number")
}

/// Seconds that are shown.
fn span(browser: &mut Browser) -> i64 {
    number(browser, "max") - number(browser, "min")
}

/// The page of a node is open, with its timeline.
pub(crate) fn zoom_with_keys(browser: &mut Browser) {
    let whole = span(browser);
    assert!(whole >= 60, "{whole} s are shown");
    assert_eq!(browser.value("document.getElementById('time-said').textContent"), Ok(json!("")), "no time is chosen");
    browser.value("document.getElementById('time').focus()").expect("a page");
    browser.key("Home");
    let begins = "['now', 'min'].map((name) => document.getElementById('time').getAttribute(`aria-value${name}`))";
    let begins = browser.value(&format!("(([now, min]) => now === min)({begins})"));
    assert_eq!(begins, Ok(json!(true)), "a key chooses the beginning");
    browser.key("ArrowRight");
    assert!(number(browser, "now") > number(browser, "min"));
    browser.key("End");
    browser.key("PageDown");
    let told = "/^[0-9]+[smh] ago \\(.*Z\\): link (up|down)/.test(document.getElementById('time').getAttribute('aria-valuetext'))";
    assert_eq!(browser.value(told), Ok(json!(true)), "the last change is told");

    browser.key("Home");
    browser.key("+");
    let half = span(browser);
    assert!((whole / 4..whole * 3 / 4).contains(&half), "{half} of {whole} s");
    let last = "[...document.querySelectorAll('#node svg .tick')].at(-1).textContent";
    assert_ne!(browser.value(last), Ok(json!("now")), "the end is not shown");
    browser.key("End");
    assert_eq!(browser.value(last), Ok(json!("now")), "it moves with the chosen time");
    browser.key("0");
    // Meanwhile some seconds may have passed.
    assert!((span(browser) - whole).abs() <= 20, "all is shown");
    browser.value("document.getElementById('zoom-in').click()").expect("a button");
    assert!(span(browser) < whole, "a button zooms, too");
    browser.value("document.getElementById('zoom-all').click()").expect("a button");

    let hover = "(() => {
        const [time, said] = [document.getElementById('time'), document.getElementById('time-said')];
        const box = time.getBoundingClientRect();
        const move = (clientX) => time.dispatchEvent(new PointerEvent('pointermove', { clientX, clientY: box.top + 9 }));
        const kept = said.textContent;
        move(box.left + box.width / 2);
        const there = said.textContent;
        time.dispatchEvent(new PointerEvent('pointerleave'));
        return [there !== kept && there.includes(' ago ('), said.textContent === kept];
    })()";
    assert_eq!(browser.value(hover), Ok(json!([true, true])), "hovering tells a time while it lasts");
}
