//! What pods and containers use, by the names of the kubelet's `/metrics/resource` and cAdvisor. Reads files of the kernel, a
//! few at a time.

use smol::future::yield_now;

use crate::health::text::{Number, Text};
use crate::node::streams::stats::plan::{Plan, ROOT};
use crate::sys::cgroup::CgroupUsage;
use crate::sys::host;

type Labels<'a, const N: usize> = [(&'a str, &'a str); N];

pub(super) async fn text(plan: Plan) -> String {
    let mut containers: Vec<(Labels<'_, 3>, CgroupUsage, Number)> = Vec::new();
    let mut pods: Vec<(Labels<'_, 2>, CgroupUsage)> = Vec::new();
    for pod in &plan.pods {
        let [name, namespace] = [("pod", pod.name.as_str()), ("namespace", pod.namespace.as_str())];
        pods.push(([name, namespace], plan.reader.usage(&pod.cgroup)));
        yield_now().await;
        for one in &pod.containers {
            let labels = [("container", one.name.as_str()), name, namespace];
            let started = Number::Nanos(u64::try_from(one.started.as_nanosecond()).unwrap_or_default());
            containers.push((labels, plan.reader.usage(&one.cgroup), started));
            yield_now().await;
        }
    }
    let mut text = Text::default();
    let cpu = |usage: &CgroupUsage| usage.cpu_nanos.map(Number::Nanos);
    let memory = |usage: &CgroupUsage| usage.working_set_bytes.map(Number::Whole);
    let mut families = |name, kind, help, of_pods: bool, value: &dyn Fn(&CgroupUsage) -> Option<Number>| {
        text.family(name, kind, help);
        let pods = pods.iter().filter(|_| of_pods).map(|(labels, usage)| (labels.as_slice(), usage));
        let each = containers.iter().filter(|_| !of_pods).map(|(labels, usage, _)| (labels.as_slice(), usage));
        for (labels, usage) in pods.chain(each) {
            if let Some(value) = value(usage) {
                text.sample(labels, value);
            }
        }
    };
    let (seconds, bytes) = ("CPU time in seconds.", "Memory in use less inactive file pages, in bytes.");
    families("container_cpu_usage_seconds_total", "counter", seconds, false, &cpu);
    families("container_memory_working_set_bytes", "gauge", bytes, false, &memory);
    let rss = |usage: &CgroupUsage| usage.rss_bytes.map(Number::Whole);
    families("container_memory_rss", "gauge", "Anonymous memory in bytes.", false, &rss);
    let limit = |usage: &CgroupUsage| usage.memory_limit_bytes.map(Number::Whole);
    families("container_spec_memory_limit_bytes", "gauge", "Limit of memory in bytes.", false, &limit);
    families("pod_cpu_usage_seconds_total", "counter", seconds, true, &cpu);
    families("pod_memory_working_set_bytes", "gauge", bytes, true, &memory);
    text.family("container_start_time_seconds", "gauge", "When it started, in seconds since 1970.");
    for (labels, _, started) in &containers {
        text.sample(labels, *started);
    }
    if let Some(value) = cpu(&plan.reader.usage(ROOT)) {
        text.one("node_cpu_usage_seconds_total", "counter", seconds, value);
    }
    text.one("node_memory_working_set_bytes", "gauge", bytes, host::memory_use().working_set_bytes);
    text.finish()
}
