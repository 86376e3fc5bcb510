//! Random courses: pods are created, deleted, become ready and unready; users damage slices; the program ends between
//! any two writes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{node, pod, service, slices};
use crate::workloads::endpoints::words::SLICE_MANAGED_BY;
use crate::workloads::plan::{Action, Write};
use crate::workloads::simulation::{Course, Model, Named, key, seeds};
use crate::workloads::world::Kind;

/// No slice is ever larger than it may be, and no write touches what people made.
fn check(model: &Model, action: &Action) {
    for slice in slices(model) {
        assert!(slice["endpoints"].as_array().unwrap().len() <= 100);
    }
    assert!(model.objects.contains_key(&(Kind::EndpointSlice, key("own"))));
    if action.kind == Kind::Service {
        assert!(!matches!(action.write, Write::Delete { .. }));
    }
}

fn ready_pods(model: &Model) -> BTreeMap<String, bool> {
    let running = model.of(Kind::Pod).filter(|pod| pod["status"]["phase"] == "Running");
    let one = |pod: &Value| {
        let ready =
            pod["status"]["conditions"][0]["status"] == "True" && pod["metadata"]["deletionTimestamp"].is_null();
        (pod["metadata"]["name"].as_str().unwrap().to_owned(), ready)
    };
    running.map(one).collect()
}

fn told(model: &Model) -> Vec<(String, bool)> {
    let ours = slices(model).into_iter().filter(|slice| !slice["metadata"]["labels"][SLICE_MANAGED_BY].is_null());
    let mut all: Vec<_> = ours
        .flat_map(|slice| slice["endpoints"].as_array().unwrap())
        .map(|one| (one["targetRef"]["name"].as_str().unwrap().to_owned(), one["conditions"]["ready"] == true))
        .collect();
    all.sort();
    all
}

fn happens(course: &mut Course, count: &mut u32) {
    let pods = course.model.names(Kind::Pod);
    let some = usize::try_from(course.chance.below(1 << 30)).unwrap().checked_rem(pods.len());
    match (course.chance.below(10), some.map(|i| pods[i].clone())) {
        (0..=2, _) => {
            for _ in 0..course.chance.below(60) {
                *count += 1;
                let ip = format!("10.{}.{}.{}", *count / 40_000, *count / 200 % 200, *count % 200 + 1);
                let ready = course.chance.one_in(2);
                course.model.put(Kind::Pod, pod(&format!("p{count}"), &ip, ready));
            }
        }
        (3, Some(_)) => pods.iter().step_by(2).for_each(|pod| course.model.remove(Kind::Pod, pod)),
        (4, Some(pod)) => course.model.change(Kind::Pod, &pod, |pod| pod["status"]["phase"] = "Failed".into()),
        (5, Some(pod)) => course.model.change(Kind::Pod, &pod, |pod| {
            pod["metadata"]["deletionTimestamp"] = "2024-07-03T10:00:00Z".into();
        }),
        (6, Some(pod)) => course.model.change(Kind::Pod, &pod, |pod| {
            let now = pod["status"]["conditions"][0]["status"] == "True";
            pod["status"]["conditions"][0]["status"] = if now { "False" } else { "True" }.into();
        }),
        // A client changes or deletes a slice.
        (7, _) => {
            let ours = course.model.names(Kind::EndpointSlice).into_iter().find(|slice| slice.name != "own");
            if let Some(slice) = ours {
                let half = course.chance.one_in(2);
                course.model.change(Kind::EndpointSlice, &slice, |slice| match half {
                    true => slice["endpoints"] = json!([]),
                    false => slice["metadata"]["labels"] = json!({}),
                });
            }
        }
        (8, _) => course.model.remove(Kind::Endpoints, &key("web")),
        _ => course.restart(),
    }
}

#[test]
fn s15_endpoints_are_what_pods_are_whatever_is_killed_in_between() {
    for seed in seeds() {
        let _named = Named(seed);
        let mut course = Course::new(seed, check);
        course.model.put(Kind::Node, node("True"));
        let own = json!({"metadata": {"name": "own", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "endpoints": []});
        course.model.put(Kind::EndpointSlice, own);
        course.model.put(Kind::Service, service(&json!({})));
        let mut count = 0;
        for _ in 0..16 {
            happens(&mut course, &mut count);
            let seconds = i64::try_from(course.chance.below(4)).unwrap();
            course.step(seconds);
        }
        course.calm = true;
        // The longest back-off of the failures of this course.
        for _ in 0..8 {
            course.step(300);
        }
        let pods = ready_pods(&course.model);
        assert_eq!(told(&course.model), pods.clone().into_iter().collect::<Vec<_>>(), "each pod once");
        let endpoints = course.model.get(Kind::Endpoints, "web");
        let listed = |list: &str| {
            let subsets = endpoints["subsets"].as_array().into_iter().flatten();
            subsets.filter_map(|subset| subset[list].as_array()).map(Vec::len).sum::<usize>()
        };
        let ready = pods.values().filter(|ready| **ready).count();
        assert_eq!(listed("addresses"), ready.min(1000));
    }
}
