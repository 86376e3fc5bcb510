//! One fleet job for all nodes: some fail, some are offline when it begins, bridges are restarted while it runs. At the
//! end each node must have the right verdict, have received its order once, and no more may have worked than the job
//! allows.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::phases::{Run, say, shell};
use crate::process;

/// Interval of requests to the bridge.
const LOOK: Duration = Duration::from_millis(500);
/// Time that the job may take after its deadline.
const LATE: Duration = Duration::from_secs(180);

impl Run {
    pub(crate) async fn jobs(&mut self, client: &Client) -> anyhow::Result<()> {
        let (nodes, offline) = (self.arguments.nodes, self.arguments.nodes * self.arguments.job_offline / 100);
        let fleet = Rc::clone(&self.fleet);
        fleet.jobs.works.set(Duration::from_secs(self.arguments.job_seconds));
        fleet.jobs.fails.set(self.arguments.job_fails);
        // The last nodes are offline; the second half of them stays offline.
        let (returning, staying) = (nodes - offline..nodes - offline / 2, nodes - offline / 2..nodes);
        fleet.set_away(returning.clone().chain(staying.clone()), true);
        let online = nodes - offline;
        self.until("the offline ones are", || fleet.count_connected() <= online).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;

        let kind = GroupVersionKind::gvk("operations.kubeedge.io", "v1alpha2", "NodeUpgradeJob");
        let jobs: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        let name = format!("{}-to-2", self.arguments.prefix);
        let deadline = Duration::from_secs(self.arguments.job_deadline);
        let job = json!({
            "apiVersion": "operations.kubeedge.io/v1alpha2", "kind": "NodeUpgradeJob",
            "metadata": {"name": name, "annotations": {"sampan.dev/deadline": format!("{}s", deadline.as_secs())}},
            "spec": {"version": "v2.0.0", "image": "registry.example/sampan", "concurrency": self.arguments.job_concurrency,
                "imageDigestGatter": {"arm64": format!("sha256:{}", "0a".repeat(32))}, "failureTolerate": "0.5",
                "labelSelector": {"matchLabels": {"swarm": self.arguments.prefix}}},
        });
        let uid = jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await?.uid().context("a uid")?;
        let (mut first, started, mut pss) = (process::look(self.pid)?, Instant::now(), 0);
        let (mut cpu, mut restarts, mut returned, mut online_took) =
            (Duration::ZERO, self.arguments.job_restart_at.clone(), false, None);
        let status = loop {
            tokio::time::sleep(LOOK).await;
            let look = process::look(self.pid)?;
            pss = pss.max(look.pss);
            let done = fleet.jobs.count_ended();
            if let Some(command) = self.arguments.job_restart.clone()
                && restarts.first().is_some_and(|percent| done * 100 >= nodes * percent)
            {
                restarts.remove(0);
                cpu += look.cpu_time_since(&first);
                let output = shell(command.clone()).await?;
                self.pid = output.trim().parse().with_context(|| format!("{command}: no process id in {output:?}"))?;
                say(&format!(
                    "bridge restarted with {done} of {nodes} nodes done, after {:.1} s",
                    started.elapsed().as_secs_f64()
                ));
                first = process::look(self.pid)?;
                continue;
            }
            if !returned && done >= online {
                online_took = Some(started.elapsed());
                let status = status(&jobs, &name).await?;
                let pending = status["counts"]["pending"].as_u64().unwrap_or_default();
                ensure!(
                    usize::try_from(pending).is_ok_and(|pending| pending == offline),
                    "who is offline is pending: {} and {}",
                    status["counts"],
                    status["reason"]
                );
                fleet.set_away(returning.clone(), false);
                returned = true;
            }
            if done >= online + returning.len() || started.elapsed() > deadline {
                let status = status(&jobs, &name).await?;
                if matches!(status["phase"].as_str(), Some("Completed" | "Failure")) {
                    break status;
                }
            }
            if started.elapsed() > deadline + LATE {
                bail!("the job does not end: {}", status(&jobs, &name).await?["reason"]);
            }
        };
        cpu += process::look(self.pid)?.cpu_time_since(&first);
        let fails = |index: usize| fleet.jobs.fails_at(index);
        let failing = (0..staying.start).filter(|index| fails(*index)).count();
        self.judge(&status, &uid, staying.start, failing)?;
        say(&format!(
            "job: {nodes} nodes, {} at a time: {} done in {:.1} s, the rest by {:.1} s (deadline {} s); at most {} at work, each ordered once; bridge CPU {:.1} s ({:.2} ms per node), pss at most {} KiB; status {} KiB",
            self.arguments.job_concurrency,
            online,
            online_took.unwrap_or_default().as_secs_f64(),
            started.elapsed().as_secs_f64(),
            deadline.as_secs(),
            fleet.jobs.most(),
            cpu.as_secs_f64(),
            1000.0 * cpu.as_secs_f64() / nodes as f64,
            pss,
            status.to_string().len() / 1024,
        ));
        say(&format!("job: {}: {}", status["phase"], status["reason"]));
        fleet.set_away(staying, false);
        Ok(())
    }

    /// Checks the result: nodes below `reached` have worked, `failing` of them without success.
    fn judge(&self, status: &Value, job: &str, reached: usize, failing: usize) -> anyhow::Result<()> {
        let nodes = self.arguments.nodes;
        let (ordered, most) = self.fleet.jobs.orders(job);
        ensure!(most == 1, "a node was given its order {most} times");
        ensure!(ordered == (0..reached).collect(), "{} of {reached} nodes were given their orders", ordered.len());
        let allowed = self.arguments.job_concurrency;
        ensure!(self.fleet.jobs.most() <= allowed, "{} were at work, {allowed} may be", self.fleet.jobs.most());
        ensure!(status["phase"] == "Completed", "{status}");
        let entries = status["nodeStatus"].as_array().context("nodes")?;
        ensure!(entries.len() == nodes, "{} nodes", entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let name = format!("{}-{index:05}", self.arguments.prefix);
            let (phase, reason) = match (index < reached, self.fleet.jobs.fails_at(index)) {
                (false, _) => ("Failure", "offline until the deadline"),
                (true, true) => ("Failure", "the new version did not come up"),
                (true, false) => ("Successful", ""),
            };
            let said = entry["reason"].as_str().unwrap_or_default();
            ensure!(
                entry["nodeName"] == name && entry["phase"] == phase && said.starts_with(reason),
                "{name}: {entry}"
            );
        }
        let wanted = json!({"total": nodes, "pending": 0, "inProgress": 0, "unknown": 0,
            "successful": reached - failing, "failure": nodes - reached + failing});
        ensure!(status["counts"] == wanted, "{} and not {wanted}", status["counts"]);
        Ok(())
    }
}

async fn status(jobs: &Api<DynamicObject>, name: &str) -> anyhow::Result<Value> {
    // The bridge that serves the API may be restarting.
    for _ in 0..60 {
        if let Ok(job) = jobs.get(name).await {
            return Ok(job.data["status"].clone());
        }
        tokio::time::sleep(LOOK).await;
    }
    bail!("the API does not answer")
}
