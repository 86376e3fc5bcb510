//! Usage of the node, its pods and their containers, in the format of the kubelet's `/stats/summary` (K8s
//! staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go). Measured on request only.
//!
//! | file | owns |
//! |---|---|
//! | `plan` | what to measure |
//! | `rates` | CPU use, from two readings of the counters |
//! | `disk` | bytes and files of the pods |
//! | `network` | counters of a network namespace |
//! | `summary` | the JSON |

mod disk;
mod network;
pub(in crate::node) mod plan;
mod rates;
mod summary;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use smol::future::yield_now;

use self::plan::Plan;
use self::rates::Rates;
use super::{Asked, Streams, Wires, logs};
use crate::sys::cgroup::{CgroupUsage, UsageReader};
use crate::sys::gather::Gather;
use crate::sys::tasks::Tasks;
use crate::sys::vec_map::VecMap;

/// Between two looks, when there was none before that could serve.
const PAUSE: Duration = Duration::from_secs(1);

/// State between two requests: a few numbers per container.
#[derive(Default)]
pub(super) struct Memory {
    rates: RefCell<Rates>,
    disk: disk::Cache,
}

/// Usage by cgroup.
type Usages = VecMap<String, CgroupUsage>;

impl Streams {
    pub(super) fn open_stats(&mut self, asked: &Asked<'_>) -> Result<(), String> {
        let plan = Plan::of(asked.of).map_err(|error| error.to_string())?;
        let (memory, tasks) = (Rc::clone(&self.usage), asked.of.cx.tasks.clone());
        self.serve(asked, "", |wires| {
            wires.input.close();
            serve(wires, plan, memory, tasks)
        });
        Ok(())
    }
}

async fn serve(wires: Wires, plan: Plan, memory: Rc<Memory>, tasks: Tasks) {
    let mut usages = look(&plan).await;
    let again = memory.rates.borrow_mut().take(Instant::now(), &counters(&usages));
    if again {
        smol::Timer::after(PAUSE).await;
        usages = look(&plan).await;
        memory.rates.borrow_mut().take(Instant::now(), &counters(&usages));
    }
    let disk = memory.disk.measure(&plan, &tasks).await;
    let summary = summary::summary(&plan, &usages, &memory.rates.borrow(), &disk, jiff::Timestamp::now());
    if logs::send_all(&wires.link, wires.stream, summary.to_string().as_bytes(), &wires.room).await {
        wires.link.stream_end(wires.stream, None);
    }
}

async fn look(plan: &Plan) -> Usages {
    let reader: &UsageReader = &plan.reader;
    let mut usages = Usages::new();
    for cgroup in plan.cgroups() {
        usages.insert(cgroup.to_owned(), reader.usage(cgroup));
        yield_now().await;
    }
    usages
}

fn counters(usages: &Usages) -> BTreeMap<String, u64> {
    usages.iter().filter_map(|(cgroup, usage)| Some((cgroup.clone(), usage.cpu_nanos?))).into_map()
}
