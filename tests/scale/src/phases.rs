//! The phases of a measurement. Prints one line for each figure.

use std::io::Write;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::json;

use crate::Arguments;
use crate::fleet::Fleet;
use crate::identity::Authority;
use crate::process::{self, Look};
use crate::steps::Steps;

/// Maximum duration of a phase.
const LIMIT: Duration = Duration::from_secs(1200);

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let bridges = std::iter::once(arguments.link).chain(arguments.other_link).collect();
    let report = (arguments.devices_per_node > 0).then(|| Duration::from_secs(arguments.devices_report));
    let mut fleet = Fleet::new(bridges, arguments.nodes, arguments.ramp, report);
    fleet.spread = arguments.spread;
    let fleet = Rc::new(fleet);
    let client = client(&arguments.kubeconfig).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let mut run = Run { fleet, pods, pid: arguments.pid, steps: None, arguments };
    run.steps("start").await?;
    run.connect().await?;
    run.steps("first connect").await?;
    run.load().await?;
    run.steps("pods created").await?;
    run.idle().await?;
    run.steps("idle").await?;
    if run.arguments.apart > 0 {
        run.apart(&client).await?;
        run.steps("pods apart").await?;
    }
    if run.arguments.devices_per_node > 0 {
        run.devices(&client).await?;
    }
    if run.arguments.job_concurrency > 0 {
        run.jobs(&client).await?;
    }
    if run.arguments.pods > 0 {
        run.pods("apply", 0).await?;
        run.steps("apply").await?;
    }
    if run.arguments.stuck > 0 {
        run.fleet.stick(run.arguments.stuck);
        say(&format!("{} nodes read nothing from now on", run.arguments.stuck));
        run.pods("apply with stuck nodes", run.arguments.pods).await?;
        run.memory("with stuck nodes")?;
        run.fleet.stick(0);
    }
    if let Some(command) = run.arguments.restart.clone() {
        run.steps = None;
        run.storm(&command).await?;
        run.steps("storm").await?;
    }
    if run.arguments.shared_kib > 0 {
        run.shared_object(&client).await?;
    }
    Ok(())
}

pub(crate) struct Run {
    pub(crate) arguments: Arguments,
    pub(crate) fleet: Rc<Fleet>,
    pub(crate) pods: Api<Pod>,
    pub(crate) pid: u32,
    /// Steps of the bridge at the end of the last phase.
    steps: Option<Steps>,
}

impl Run {
    /// Reports the lengths of the bridge's steps since the last call, if they are measured.
    async fn steps(&mut self, what: &str) -> anyhow::Result<()> {
        let Some(file) = &self.arguments.steps else { return Ok(()) };
        let now = Steps::read(file).await?;
        let before = self.steps.replace(now.clone()).unwrap_or_default();
        now.since(&before).iter().for_each(|line| say(&format!("steps, {what}: {line}")));
        Ok(())
    }

    async fn connect(&mut self) -> anyhow::Result<()> {
        let authority = Authority::read(&self.arguments.ca, &self.arguments.ca_key)?;
        let names: Vec<String> =
            (0..self.arguments.nodes).map(|index| format!("{}-{index:05}", self.arguments.prefix)).collect();
        let mut identities = Vec::with_capacity(names.len());
        for name in &names {
            identities.push(authority.node(name)?);
        }
        let before = process::look(self.pid)?;
        say(&format!("bridge without nodes: rss {} KiB, pss {} KiB", before.rss, before.pss));
        let started = Instant::now();
        for (index, (name, tls)) in names.into_iter().zip(identities).enumerate() {
            tokio::task::spawn_local(crate::node::run(index, name, tls, Rc::clone(&self.fleet)));
        }
        let all = self.arguments.nodes;
        let fleet = Rc::clone(&self.fleet);
        self.until("all registered", || fleet.count_registered() >= all && fleet.count_synced() >= all).await?;
        let after = process::look(self.pid)?;
        let took = started.elapsed().as_secs_f64();
        let cpu = after.cpu_time_since(&before).as_secs_f64();
        say(&format!(
            "first connect: {all} nodes joined and registered in {took:.1} s, bridge CPU {cpu:.1} s ({:.2} ms per node)",
            1000.0 * cpu / all as f64
        ));
        Ok(())
    }

    /// Creates the pods that every node has from the start.
    async fn load(&mut self) -> anyhow::Result<()> {
        let (nodes, each) = (self.arguments.nodes, self.arguments.pods_per_node);
        let prefix = self.arguments.prefix.clone();
        let all = (0..nodes).flat_map(|node| (0..each).map(move |number| (node, number)));
        let names: Vec<String> = all.clone().map(|(node, number)| format!("{prefix}-{node:05}-{number}")).collect();
        if names.is_empty() {
            return Ok(());
        }
        let (before, started) = (process::look(self.pid)?, Instant::now());
        let create = |((node, number), name): ((usize, usize), &String)| {
            let made = pod(name, &format!("{prefix}-{node:05}"));
            let pods = &self.pods;
            async move {
                let _ = number;
                pods.create(&PostParams::default(), &made?).await.map(drop).map_err(anyhow::Error::from)
            }
        };
        let mut creating = futures::stream::iter(all.zip(&names).map(create)).buffer_unordered(32);
        while let Some(created) = creating.next().await {
            created?;
        }
        drop(creating);
        let fleet = Rc::clone(&self.fleet);
        self.until("all first pods reported", || names.iter().all(|name| fleet.times(name).reported.is_some())).await?;
        let after = process::look(self.pid)?;
        say(&format!(
            "{} pods created and reported in {:.1} s, bridge CPU {:.1} s",
            names.len(),
            started.elapsed().as_secs_f64(),
            after.cpu_time_since(&before).as_secs_f64()
        ));
        Ok(())
    }

    async fn idle(&mut self) -> anyhow::Result<()> {
        // The bridge's work after the start is over when its CPU use has been low for a while; a minute is enough for
        // all sizes.
        tokio::time::sleep(Duration::from_secs(self.arguments.idle.min(30))).await;
        let (before, bytes, started) = (process::look(self.pid)?, self.fleet.counters.total(), Instant::now());
        let lost = self.fleet.count_lost();
        tokio::time::sleep(Duration::from_secs(self.arguments.idle)).await;
        let (after, now, passed) = (process::look(self.pid)?, self.fleet.counters.total(), started.elapsed());
        let per_node = |bytes: u64| bytes as f64 / self.arguments.nodes as f64;
        let (up, down) = (per_node(now.0 - bytes.0), per_node(now.1 - bytes.1));
        let day = (up + down) / passed.as_secs_f64() * 86_400.0;
        say(&format!(
            "idle {:.0} s: {} connected, {} lost, CPU {:.1} % of a core, rss {} KiB, pss {} KiB ({:.1} KiB per node), disk {:.0} KiB/s",
            passed.as_secs_f64(),
            self.fleet.count_connected(),
            self.fleet.count_lost() - lost,
            after.cpu_since(&before),
            after.rss,
            after.pss,
            after.pss as f64 / self.arguments.nodes as f64,
            after.written_since(&before) / 1024.0,
        ));
        say(&format!(
            "idle link below TLS without TCP/IP headers: {:.1} byte/s up, {:.1} byte/s down per node, {:.0} KiB a day",
            up / passed.as_secs_f64(),
            down / passed.as_secs_f64(),
            day / 1024.0
        ));
        Ok(())
    }

    /// Creates pods one by one on random nodes that are not stuck, at a steady rate.
    async fn pods(&mut self, what: &str, first: usize) -> anyhow::Result<()> {
        let pause = Duration::from_secs(1) / self.arguments.rate.max(1);
        let mut names = Vec::new();
        let before = process::look(self.pid)?;
        let mut ticks = tokio::time::interval(pause);
        for number in first..first + self.arguments.pods {
            ticks.tick().await;
            let healthy = self.arguments.nodes - self.arguments.stuck;
            let index = usize::try_from(self.fleet.random() % healthy.max(1) as u64)? + self.arguments.stuck;
            let node = format!("{}-{index:05}", self.arguments.prefix);
            let name = format!("{}-pod-{number}", self.arguments.prefix);
            let (pods, fleet, pod) = (self.pods.clone(), Rc::clone(&self.fleet), pod(&name, &node)?);
            names.push(name.clone());
            tokio::task::spawn_local(async move {
                fleet.created(&name, Instant::now());
                if let Err(error) = pods.create(&PostParams::default(), &pod).await {
                    say(&format!("creating {name}: {error}"));
                }
            });
        }
        let fleet = Rc::clone(&self.fleet);
        let wanted = names.clone();
        self.until("all pods reported", || wanted.iter().all(|name| fleet.times(name).reported.is_some())).await?;
        let after = process::look(self.pid)?;
        let times: Vec<_> = names.iter().map(|name| self.fleet.times(name)).collect();
        let since = |get: fn(&crate::fleet::Times) -> Option<Instant>| {
            let mut list: Vec<f64> =
                times.iter().filter_map(|t| Some(get(t)?.duration_since(t.created?).as_secs_f64() * 1000.0)).collect();
            list.sort_by(f64::total_cmp);
            let at =
                |percent: usize| list.get(list.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default();
            format!("p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms, max {:.1} ms", at(50), at(90), at(99), at(100))
        };
        say(&format!("{what} -> at the edge:       {}", since(|t| t.arrived)));
        say(&format!("{what} -> Running in the API: {}", since(|t| t.reported)));
        say(&format!(
            "{what}: {} pods at {}/s, bridge CPU {:.1} % of a core",
            names.len(),
            self.arguments.rate,
            after.cpu_since(&before)
        ));
        for name in &names {
            let _ = self.pods.delete(name, &DeleteParams::default().grace_period(0)).await;
        }
        Ok(())
    }

    fn memory(&self, what: &str) -> anyhow::Result<()> {
        let look = process::look(self.pid)?;
        say(&format!("{what}: {} connected, rss {} KiB, pss {} KiB", self.fleet.count_connected(), look.rss, look.pss));
        Ok(())
    }

    /// Restarts the bridge, so that all nodes reconnect at the same moment.
    async fn storm(&mut self, command: &str) -> anyhow::Result<()> {
        let all = self.arguments.nodes;
        let output = shell(command.to_owned()).await?;
        self.pid = output.trim().parse().with_context(|| format!("{command}: no process id in {output:?}"))?;
        let started = Instant::now();
        let first = process::look(self.pid)?;
        let own = process::look(std::process::id())?;
        let (mut last, mut peak_cpu) = (first, 0.0_f64);
        let mut marks = vec![(0.5, None), (0.9, None), (0.99, None), (1.0, None)];
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now: Look = process::look(self.pid)?;
            peak_cpu = peak_cpu.max(now.cpu_since(&last));
            last = now;
            let back = self.fleet.count_connected() as f64 / all as f64;
            for (share, when) in &mut marks {
                if back >= *share && when.is_none() {
                    *when = Some(started.elapsed().as_secs_f64());
                }
            }
            if marks.iter().all(|(_, when)| when.is_some()) {
                break;
            }
            if started.elapsed() > LIMIT {
                bail!(
                    "only {} of {all} nodes came back: {:?}",
                    self.fleet.count_connected(),
                    self.fleet.take_failures()
                );
            }
        }
        let marks: Vec<String> = marks
            .iter()
            .map(|(share, when)| format!("{:.0} % {:.0} s", share * 100.0, when.unwrap_or_default()))
            .collect();
        let cpu = last.cpu_time_since(&first).as_secs_f64();
        say(&format!(
            "storm: back after restart: {}; CPU {cpu:.1} s in all ({:.2} ms per node), peak {peak_cpu:.0} % of a core in a second, peak rss {} KiB; swarm's own CPU meanwhile {:.1} s",
            marks.join(", "),
            1000.0 * cpu / all as f64,
            last.peak,
            process::look(std::process::id())?.cpu_time_since(&own).as_secs_f64()
        ));
        say(&format!("storm: failures seen by nodes: {:?}", self.fleet.take_failures()));
        tokio::time::sleep(Duration::from_secs(20)).await;
        self.memory("20 s after the storm")
    }

    pub(crate) async fn until(&self, what: &str, done: impl Fn() -> bool) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut told = Instant::now();
        while !done() {
            if started.elapsed() > LIMIT {
                bail!("{what}: not within {LIMIT:?}: {:?}", self.fleet.take_failures());
            }
            if self.fleet.count_refused() > 0 {
                bail!("{what}: {:?}", self.fleet.take_failures());
            }
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                let look = process::look(self.pid)?;
                say(&format!(
                    "... {what}: {} connected, {} synced, {} registered, rss {} KiB",
                    self.fleet.count_connected(),
                    self.fleet.count_synced(),
                    self.fleet.count_registered(),
                    look.rss
                ));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let failures = self.fleet.take_failures();
        if !failures.is_empty() {
            say(&format!("failures meanwhile: {failures:?}"));
        }
        Ok(())
    }
}

/// The output of a shell command.
pub(crate) async fn shell(command: String) -> anyhow::Result<String> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // The nodes must continue meanwhile, on the only thread of the runtime.
    std::thread::spawn(move || {
        // The receiver may be gone.
        let _ = sender.send(std::process::Command::new("sh").arg("-c").arg(&command).output());
    });
    Ok(String::from_utf8_lossy(&receiver.await??.stdout).into_owned())
}

pub(crate) fn pod(name: &str, node: &str) -> anyhow::Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": "swarm"}},
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false, "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "docker.io/library/busybox:latest", "command": ["sleep", "inf"],
                "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"memory": "20Mi"}}}],
        },
    }))?)
}

async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| kubeconfig.display().to_string())?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

pub(crate) fn say(line: &str) {
    // The reader of the output may be gone.
    let _ = writeln!(std::io::stdout(), "{line}");
}
