//! Tasks on a real executor, with commands whose answers the test chooses.

use crate::sys::tasks::Tasks;
use std::cell::RefCell;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use serde_json::json;

use super::*;

/// Kind, verdict, words.
type Told = (ProbeKind, Option<bool>, Option<String>);

#[derive(Default)]
struct Bench {
    /// Exit code of the next commands, by their first word.
    codes: RefCell<BTreeMap<String, i32>>,
    ran: RefCell<Vec<String>>,
    told: RefCell<Vec<Told>>,
}

fn target(id: &str) -> ProbeTarget {
    let probe = |word: &str| json!({"exec": {"command": [word]}, "periodSeconds": 1, "failureThreshold": 1});
    let container: Container = serde_json::from_value(json!({
        "name": "c",
        "startupProbe": probe("startup"), "readinessProbe": probe("readiness"), "livenessProbe": probe("liveness"),
    }))
    .unwrap();
    ProbeTarget {
        pod_uid: "u".into(),
        container: "c".into(),
        id: id.into(),
        address: IpAddr::from([127, 0, 0, 1]),
        started: Clock::mono(),
        ending: false,
        probes: ProbeTarget::specs(&container),
    }
}

fn with(test: impl AsyncFn(Rc<Bench>, Supervisor)) {
    let bench = Rc::new(Bench::default());
    let executor = Tasks::default();
    let exec: ExecProbe = {
        let bench = Rc::clone(&bench);
        Rc::new(move |_, argv, _| {
            bench.ran.borrow_mut().push(argv[0].clone());
            let code = bench.codes.borrow().get(&argv[0]).copied().unwrap_or(0);
            Box::pin(async move { Ok((code, b"said so".to_vec())) })
        })
    };
    let tell = {
        let bench = Rc::clone(&bench);
        Rc::new(move |e: ProbeEvent| bench.told.borrow_mut().push((e.kind, e.verdict, e.event.map(|(_, text)| text))))
    };
    let supervisor = Supervisor::new(executor.clone(), exec, tell);
    smol::block_on(executor.run(async { test(bench, supervisor).await }));
}

async fn sleep(ms: u64) {
    smol::Timer::after(Duration::from_millis(ms)).await;
}

#[test]
fn startup_runs_first_and_only_changes_are_reported() {
    with(async |bench, mut supervisor| {
        bench.codes.borrow_mut().insert("readiness".into(), 1);
        let mut target = target("aaaaaaaa");
        supervisor.sync("u", &[target.clone()]);
        sleep(300).await;
        let text = Some("Readiness probe failed: said so".to_owned());
        assert_eq!(bench.ran.borrow()[0], "startup");
        assert_eq!(
            *bench.told.borrow(),
            [(ProbeKind::Startup, Some(true), None), (ProbeKind::Readiness, Some(false), text)]
        );
        for spec in &mut target.probes {
            spec.known = Some(spec.kind != ProbeKind::Readiness);
        }
        supervisor.sync("u", &[target.clone()]);
        bench.told.borrow_mut().clear();
        sleep(1900).await;
        assert!(bench.told.borrow().is_empty(), "{:?}", bench.told.borrow());
        bench.codes.borrow_mut().insert("readiness".into(), 0);
        bench.codes.borrow_mut().insert("liveness".into(), 1);
        sleep(1000).await;
        let text = Some("Liveness probe failed: said so".to_owned());
        let told = bench.told.borrow().clone();
        assert!(told.contains(&(ProbeKind::Readiness, Some(true), None)));
        assert!(told.contains(&(ProbeKind::Liveness, Some(false), text)));
        let live = || bench.ran.borrow().iter().filter(|w| *w == "liveness").count();
        let before = live();
        sleep(1100).await;
        assert_eq!(live(), before, "a container found dead is not probed again");
        assert_eq!(bench.ran.borrow().iter().filter(|w| *w == "startup").count(), 1);
    });
}

#[test]
fn lost_verdict_is_reported_again() {
    with(async |bench, mut supervisor| {
        let mut target = target("00000000");
        target.probes.retain(|p| p.kind == ProbeKind::Readiness);
        supervisor.sync("u", &[target.clone()]);
        sleep(1300).await;
        assert_eq!(bench.told.borrow().len(), 2);
        target.probes[0].known = Some(true);
        supervisor.sync("u", &[target]);
        sleep(1200).await;
        assert_eq!(bench.told.borrow().len(), 2);
    });
}

#[test]
fn tasks_follow_the_attempts() {
    with(async |bench, mut supervisor| {
        let mut first = target("00000000");
        first.probes.retain(|p| p.kind == ProbeKind::Readiness);
        supervisor.sync("u", &[first.clone()]);
        sleep(100).await;
        supervisor.sync("u", &[first.clone()]);
        sleep(100).await;
        assert_eq!(bench.ran.borrow().len(), 1, "an unchanged target keeps its task");
        supervisor.sync("u", &[ProbeTarget { id: "00000001".into(), ..first }]);
        sleep(100).await;
        assert_eq!(bench.ran.borrow().len(), 2, "a new attempt is probed at once");
        supervisor.sync("u", &[]);
        sleep(1100).await;
        assert_eq!(bench.ran.borrow().len(), 2);
    });
}
