//! Objects that own each other in a cycle.

use serde_json::{Value, json};

use crate::harness::{Api, MERGE, config};

/// `first` owned by `third`, `second` by `first`, `third` by `second`; each blocks its owner's deletion.
async fn circle(api: &Api) {
    let names = ["first", "second", "third"];
    let mut uids = Vec::new();
    for name in names {
        let made = api.post(&api.path("configmaps"), config(name, json!({}))).await.ok();
        uids.push(made["metadata"]["uid"].clone());
    }
    for (index, name) in names.iter().enumerate() {
        let owner = (index + 2) % 3;
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": names[owner], "uid": uids[owner],
            "controller": true, "blockOwnerDeletion": true});
        let change = json!({"metadata": {"ownerReferences": [reference]}});
        api.patch(&api.path(&format!("configmaps/{name}")), MERGE, change).await.ok();
    }
}

#[tokio::test]
async fn a_circle_goes_whichever_way_one_of_it_goes() {
    let api = Api::open().await;
    for policy in ["Foreground", "Background"] {
        circle(&api).await;
        let options = json!({"propagationPolicy": policy});
        api.delete(&api.path("configmaps/first"), options).await.ok();
        for name in ["first", "second", "third"] {
            api.until(&api.path(&format!("configmaps/{name}")), |answer| answer.code == 404).await;
        }
    }
    circle(&api).await;
    api.delete(&api.path("configmaps/first"), json!({"propagationPolicy": "Orphan"})).await.ok();
    api.until(&api.path("configmaps/first"), |answer| answer.code == 404).await;
    let second = api.get(&api.path("configmaps/second")).await.ok();
    assert!(second["metadata"]["ownerReferences"].is_null(), "{second}");
    assert_eq!(api.delete(&api.path("configmaps/second"), Value::Null).await.code, 200);
}
