//! Text and JSON of what is used. Pure.

use sampan_sys::terminal::Size;
use serde_json::{Value, json};

use super::view::View;

/// Without a size all of it, else what fits.
pub(super) fn text(view: &View, size: Option<Size>) -> String {
    let node = &view.node;
    let percent = view.node_milli.map_or_else(|| "-".to_owned(), |milli| tenths(milli / u64::from(node.cpus.max(1))));
    let hot = node.degrees.map(|degrees| format!("   {degrees} °C")).unwrap_or_default();
    let swap = if node.swap_bytes > 0 { format!(" + {} swap", bytes(node.swap_bytes)) } else { String::new() };
    let running = view.pods.iter().flat_map(|one| &one.pod.containers).filter(|one| one.state == "Running").count();
    let mut lines = vec![
        format!(
            "{}   CPU {percent} % of {}   memory {} of {}{swap}   load {}{hot}",
            node.name,
            node.cpus,
            bytes(node.used_bytes),
            bytes(node.memory_bytes),
            node.load
        ),
        format!("{} pods, {running} containers run", view.pods.len()),
        String::new(),
        row("NAMESPACE", "POD", "CONTAINER", ["CPU %", "MEMORY", "LIMIT", "RESTARTS"], "STATE"),
    ];
    for one in &view.pods {
        let pod = &one.pod;
        let cells = [cpu(one.milli), size_of(pod.memory_bytes), String::new(), String::new()];
        lines.push(row(&pod.namespace, &pod.name, "", cells.each_ref().map(String::as_str), ""));
        for (container, milli) in pod.containers.iter().zip(&one.container_millis) {
            let limit = container.limit_bytes.map(bytes).unwrap_or_default();
            let cells = [cpu(*milli), size_of(container.memory_bytes), limit, container.restarts.to_string()];
            lines.push(row("", "", &container.name, cells.each_ref().map(String::as_str), container.state));
        }
    }
    let Some(size) = size else { return lines.join("\n") };
    lines.push(String::new());
    lines.push("q ends; first: c CPU, m memory, n name".to_owned());
    let (height, width) = (usize::from(size.height).max(2), usize::from(size.width));
    if lines.len() > height {
        let hidden = lines.len() - height;
        let last = lines.split_off(lines.len() - 1);
        lines.truncate(height - 1);
        lines.extend(last.into_iter().map(|line| format!("{line}   ({hidden} lines more)")));
    }
    let cut = lines.into_iter().map(|line| line.chars().take(width).collect::<String>());
    cut.collect::<Vec<_>>().join("\n")
}

fn row(namespace: &str, pod: &str, container: &str, [cpu, memory, limit, restarts]: [&str; 4], state: &str) -> String {
    let line =
        format!("{namespace:<14} {pod:<32} {container:<16} {cpu:>6} {memory:>8} {limit:>8} {restarts:>8}  {state}");
    line.trim_end().to_owned()
}

fn cpu(milli: Option<u64>) -> String {
    milli.map_or_else(|| "-".to_owned(), tenths)
}

/// Thousandths as per cent.
pub(crate) fn tenths(milli: u64) -> String {
    format!("{}.{}", milli / 10, milli % 10)
}

fn size_of(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), bytes)
}

pub(crate) fn bytes(value: u64) -> String {
    const MIB: u64 = 1 << 20;
    match value {
        0..MIB => format!("{}Ki", value >> 10),
        MIB..0x2_8000_0000 => format!("{}Mi", value >> 20),
        _ => format!("{}Gi", value >> 30),
    }
}

pub(super) fn json(view: &View) -> Value {
    let percent = |milli: Option<u64>| milli.map(|milli| milli as f64 / 10.0);
    let pods = view.pods.iter().map(|one| {
        let containers = one.pod.containers.iter().zip(&one.container_millis).map(|(container, milli)| {
            json!({
                "name": container.name,
                "state": container.state,
                "restarts": container.restarts,
                "cpuPercent": percent(*milli),
                "memoryBytes": container.memory_bytes,
                "limitBytes": container.limit_bytes,
            })
        });
        json!({
            "namespace": one.pod.namespace,
            "name": one.pod.name,
            "cpuPercent": percent(one.milli),
            "memoryBytes": one.pod.memory_bytes,
            "containers": containers.collect::<Vec<_>>(),
        })
    });
    let node = &view.node;
    json!({
        "node": {
            "name": node.name,
            "cpus": node.cpus,
            "cpuPercent": percent(view.node_milli),
            "memoryBytes": node.used_bytes,
            "memoryTotalBytes": node.memory_bytes,
            "swapBytes": node.swap_bytes,
            "load": node.load,
            "degrees": node.degrees,
        },
        "pods": pods.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::look::{ContainerLook, Node, PodLook};
    use super::super::view::PodView;
    use super::*;

    fn view() -> View {
        let container = ContainerLook {
            name: "app".into(),
            state: "Running",
            restarts: 3,
            memory_bytes: Some(5 << 20),
            limit_bytes: Some(64 << 20),
            ..ContainerLook::default()
        };
        let pod = PodLook {
            namespace: "default".into(),
            name: "web".into(),
            memory_bytes: Some(6 << 20),
            containers: vec![container],
            ..PodLook::default()
        };
        let node =
            Node { name: "edge-1".into(), cpus: 4, memory_bytes: 1 << 30, used_bytes: 300 << 20, ..Node::default() };
        let one = PodView { pod, milli: Some(125), container_millis: vec![None] };
        View { node, node_milli: Some(2000), pods: vec![one] }
    }

    #[test]
    fn a_pod_and_its_containers_are_lines() {
        let shown = text(&view(), None);
        assert!(shown.starts_with("edge-1   CPU 50.0 % of 4   memory 300Mi of 1024Mi   load"), "{shown}");
        let lines: Vec<Vec<&str>> = shown.lines().skip(4).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines, [vec!["default", "web", "12.5", "6Mi"], vec!["app", "-", "5Mi", "64Mi", "3", "Running"]]);
        let value = json(&view());
        assert_eq!(
            (&value["pods"][0]["cpuPercent"], &value["pods"][0]["containers"][0]["restarts"]),
            (&json!(12.5), &json!(3))
        );
    }

    #[test]
    fn no_line_is_beyond_the_screen() {
        for (width, height) in [(80, 24), (20, 5), (0, 0), (1, 1), (u16::MAX, u16::MAX)] {
            let shown = text(&view(), Some(Size { width, height }));
            assert!(shown.lines().all(|line| line.chars().count() <= width.into()), "{shown}");
            assert!(shown.lines().count() <= usize::from(height).max(2), "{width}x{height}:\n{shown}");
        }
    }
}
