//! The API as its clients see it. Every test expects the answers of a real API server. If `TEST_KUBECONFIG` names a
//! kubeconfig with cluster-admin rights, the whole suite runs on that server; otherwise on the embedded API in this
//! process.

mod access;
mod accounts;
mod answers;
mod apply;
mod autoscalers;
mod budgets;
mod circles;
mod classes;
mod csi;
mod custom;
mod deletion;
mod deployments;
mod follow;
mod harness;
mod hostile;
mod jobs;
mod lists;
mod networking;
mod node;
mod objects;
mod patches;
mod pod_security;
mod pods;
mod published;
mod quotas;
mod rbac;
mod restriction;
mod storage;
mod strange;
mod tls;
mod validations;
mod watches;
mod workloads;
mod yaml;
