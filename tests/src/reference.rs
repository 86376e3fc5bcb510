//! Whether the pages of `docs/reference` that people write have every name of the sources, and no other: annotations and
//! labels, reasons of events, metrics of a node, environment variables, flags of the helpers. Reads both as text.

use std::collections::BTreeSet;
use std::path::Path;

use sampan_floors::sources::product_code;

type Names = BTreeSet<String>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// The product code of these folders.
fn code(folders: &[&str]) -> Vec<String> {
    let files = folders.iter().flat_map(|folder| product_code(&root().join(folder)));
    files.map(|(_, text)| text).collect()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Code words in the first cells of the tables of a page, from one heading to the next; of the whole page without a heading.
fn listed(page: &str, heading: Option<&str>) -> Names {
    let page = read(&format!("docs/reference/{page}"));
    let part = match heading {
        None => page.as_str(),
        Some(heading) => {
            let (_, rest) = page.split_once(&format!("\n## {heading}\n")).expect("the heading");
            rest.split("\n## ").next().unwrap_or_default()
        }
    };
    let cells = part.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Literals that are one word. What stands between two literals is one only by chance, as `.` is.
fn words(code: &[String]) -> Names {
    let is_word = |text: &&str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'/'))
    };
    code.iter().flat_map(|text| text.split('"').filter(is_word)).map(str::to_owned).collect()
}

/// The literal that a text begins with.
fn literal(text: &str) -> Option<&str> {
    text.trim_start().strip_prefix('"')?.split('"').next()
}

fn is_reason(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[test]
fn every_annotation_and_label_is_listed() {
    let ours = |names: Names| -> Names {
        let named = names.iter().filter_map(|name| name.strip_prefix("sampan.dev/")).filter(|name| !name.is_empty());
        // One for each architecture.
        named.map(|name| if name.starts_with("signature.") { "signature." } else { name }.to_owned()).collect()
    };
    let used = ours(words(&code(&["edge-protocol", "edge-runtime", "cloud-bridge"])));
    assert!(used.len() > 15, "{used:?}");
    assert_eq!(ours(listed("labels.md", None)), used, "docs/reference/labels.md, and the sources");
}

/// Reasons that are literals where an event is made.
#[test]
fn every_reason_of_an_event_is_listed() {
    let code = code(&["edge-protocol", "edge-runtime", "cloud-bridge"]);
    let (listed, words) = (listed("events.md", None), words(&code));
    for reason in &listed {
        assert!(words.contains(reason), "{reason} of docs/reference/events.md is in no source");
    }
    let makers = [
        "node_event(",
        "warn_about_pod(",
        "warn_about_container(",
        "EventDraft::pod(",
        "container_event(",
        "image_event(",
        "node_warning(",
    ];
    let mut seen = 0;
    for rest in makers.iter().flat_map(|maker| code.iter().flat_map(move |text| text.split(*maker).skip(1))) {
        let call = rest.split(';').next().unwrap_or_default();
        // Whole arguments; a message has other signs.
        let arguments = call.split(',').take(4).map(str::trim);
        let literals = arguments.filter_map(|text| text.strip_prefix('"')?.strip_suffix('"'));
        for reason in literals.filter(|text| is_reason(text)) {
            assert!(listed.contains(reason), "{reason} is missing in docs/reference/events.md");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn every_metric_of_a_node_is_listed() {
    let code = code(&["edge-runtime/src/node/metrics"]);
    let calls = [".family(", ".one(", "families(", "count(text,"];
    let rests = calls.iter().flat_map(|call| code.iter().flat_map(move |text| text.split(*call).skip(1)));
    let printed: Names = rests.filter_map(literal).map(str::to_owned).collect();
    assert!(printed.len() > 40, "{printed:?}");
    assert_eq!(listed("metrics.md", Some("Metrics of a node")), printed, "docs/reference/metrics.md, and the sources");
}

#[test]
fn every_environment_variable_is_listed() {
    let mut code = code(&["edge-protocol", "edge-runtime", "cloud-bridge"]);
    let listed = listed("files.md", Some("Environment variables"));
    let calls = ["env::var(", "env::var_os("];
    let rests = calls.iter().flat_map(|call| code.iter().flat_map(move |text| text.split(*call).skip(1)));
    // For builds that measure themselves, and told of in prose.
    let others = ["SAMPAN_STEPS", "NOTIFY_SOCKET"];
    for name in rests.filter_map(literal).filter(|name| !others.contains(name)) {
        assert!(listed.contains(name), "{name} is missing in docs/reference/files.md");
    }
    for program in ["edge-runtime", "cloud-bridge"] {
        code.push(read(&format!("packaging/{program}/{program}.default")));
    }
    assert!(listed.len() > 8, "{listed:?}");
    for name in listed {
        let is_read =
            code.iter().any(|text| text.contains(&format!("\"{name}\"")) || text.contains(&format!("\n{name}=")));
        assert!(is_read, "{name} of docs/reference/files.md is in no source");
    }
}

#[test]
fn every_flag_of_the_helpers_is_listed() {
    for (program, main) in [
        ("edge-devices", "edge-runtime/devices/src/main.rs"),
        ("edge-api", "edge-runtime/api/src/main.rs"),
        ("edge-plugins", "edge-runtime/plugins/src/main.rs"),
    ] {
        let (shared, own) = (read("edge-runtime/helper/src/program.rs"), read(main));
        // Tests of the shared part have a flag, too.
        let shared = shared.split("#[cfg(test)]").next().unwrap_or_default().split("Arg::Long(").skip(1);
        let flags = shared.chain(own.split("Job { flag: ").skip(1)).filter_map(literal);
        let flags: Names = flags.map(|flag| format!("--{flag}")).collect();
        let listed = listed("edge-runtime.md", Some(program));
        let listed: Names = listed
            .iter()
            .filter(|word| word.starts_with("--"))
            .filter_map(|word| word.split(' ').next())
            .map(str::to_owned)
            .collect();
        assert_eq!(listed, flags, "docs/reference/edge-runtime.md, and {program}");
    }
}
