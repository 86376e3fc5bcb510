//! Values of cgroups, compared with those of a kubelet.

use super::*;
use serde_json::{Value, json};

fn pod(containers: Value, init: Value) -> Pod {
    serde_json::from_value(
        json!({"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": init}}),
    )
    .unwrap()
}

fn app(requests: Value, limits: Value) -> Value {
    json!({"name": "c", "resources": {"requests": requests, "limits": limits}})
}

fn first(pod: &Pod) -> &Container {
    &pod.spec.as_ref().unwrap().containers[0]
}

#[test]
fn container_values_as_the_kubelet_computes_them() {
    let p = pod(json!([app(json!({"cpu": "250m"}), json!({"cpu": "1500m", "memory": "64Mi"}))]), json!([]));
    let got = container_values(&p, first(&p)).unwrap();
    assert_eq!((got.cpu_shares, got.cpu_quota_us, got.memory_limit_bytes), (Some(256), Some(150_000), Some(64 << 20)));
    let none = pod(json!([{"name": "c"}]), json!([]));
    let got = container_values(&none, first(&none)).unwrap();
    assert_eq!((got.cpu_shares, got.cpu_quota_us, got.memory_limit_bytes), (Some(2), None, None));
    let limit_only = pod(json!([app(json!({}), json!({"cpu": "5m"}))]), json!([]));
    let got = container_values(&limit_only, first(&limit_only)).unwrap();
    assert_eq!((got.cpu_shares, got.cpu_quota_us), (Some(5), Some(1000)));
    let bad = pod(json!([app(json!({"cpu": "lots"}), json!({}))]), json!([]));
    assert!(container_values(&bad, first(&bad)).unwrap_err().to_string().contains("lots"));
}

#[test]
fn pod_limits_need_a_limit_in_every_container() {
    let limited = app(json!({"cpu": "100m"}), json!({"cpu": "200m", "memory": "10Mi"}));
    let open = app(json!({"cpu": "100m"}), json!({}));
    let both = pod_values(&pod(json!([limited, limited]), json!([]))).unwrap();
    assert_eq!(
        (both.cpu_shares, both.cpu_quota_us, both.memory_limit_bytes),
        (Some(204), Some(40_000), Some(20 << 20))
    );
    let half = pod_values(&pod(json!([limited, open]), json!([]))).unwrap();
    assert_eq!((half.cpu_shares, half.cpu_quota_us, half.memory_limit_bytes), (Some(204), None, None));
    let init = app(json!({"cpu": "1"}), json!({"cpu": "1", "memory": "50Mi"}));
    let with_init = pod_values(&pod(json!([limited]), json!([init]))).unwrap();
    assert_eq!((with_init.cpu_shares, with_init.memory_limit_bytes), (Some(1024), Some(50 << 20)));
    let best_effort = pod_values(&pod(json!([{"name": "c"}]), json!([]))).unwrap();
    assert_eq!((best_effort.cpu_shares, best_effort.memory_limit_bytes), (Some(2), None));
}

#[test]
fn the_pod_as_a_whole_has_a_say() {
    let mut p = pod(json!([{"name": "c"}, app(json!({"memory": "64Mi"}), json!({"memory": "64Mi"}))]), json!([]));
    let whole = json!({"requests": {"cpu": "500m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}});
    p.spec.as_mut().unwrap().resources = serde_json::from_value(whole).unwrap();
    let all = pod_values(&p).unwrap();
    assert_eq!((all.cpu_shares, all.cpu_quota_us, all.memory_limit_bytes), (Some(512), Some(100_000), Some(256 << 20)));
    let open = container_values(&p, first(&p)).unwrap();
    assert_eq!((open.cpu_quota_us, open.memory_limit_bytes), (Some(100_000), Some(256 << 20)));
    let own = container_values(&p, &p.spec.as_ref().unwrap().containers[1]).unwrap();
    assert_eq!(own.memory_limit_bytes, Some(64 << 20));
    assert_eq!(oom_score_adj(&p, false, first(&p), 1 << 30), 1000 - 1000 * 32 / 1024);
}

#[test]
fn swap_in_proportion() {
    let p = pod(json!([app(json!({"memory": "256Mi"}), json!({}))]), json!([]));
    let swap = |swap| swap_limit(&p, first(&p), swap, 1 << 30, 512 << 20);
    assert_eq!((swap(Swap::None), swap(Swap::Limited), swap(Swap::Unlimited)), (Some(0), Some(128 << 20), None));
    let none = pod(json!([{"name": "c"}]), json!([]));
    assert_eq!(swap_limit(&none, first(&none), Swap::Limited, 1 << 30, 1 << 30), Some(0));
}

#[test]
fn oom_scores_by_class() {
    let gib = 1u64 << 30;
    let score = |requests, limits| {
        let p = pod(json!([app(requests, limits)]), json!([]));
        oom_score_adj(&p, false, first(&p), 4 * gib)
    };
    let full = json!({"cpu": "1", "memory": "1Gi"});
    assert_eq!(score(full.clone(), full), -997);
    assert_eq!(score(json!({}), json!({})), 1000);
    assert_eq!(score(json!({"memory": "1Gi"}), json!({})), 750);
    assert_eq!(score(json!({"cpu": "1"}), json!({})), 999);
    assert_eq!(score(json!({"memory": "8Gi"}), json!({})), 3);
    let mut claims = pod(json!([{"name": "c"}]), json!([]));
    claims.metadata.annotations = Some([("kubernetes.io/config.source".into(), "file".into())].into());
    claims.spec.as_mut().unwrap().priority_class_name = Some("system-node-critical".into());
    claims.spec.as_mut().unwrap().priority = Some(0);
    let scores = [false, true].map(|is_static| oom_score_adj(&claims, is_static, first(&claims), 4 * gib));
    assert_eq!(scores, [1000, -997], "what a pod says of its source is nobody's word");
}
