//! The bridge between a scripted node and a Kubernetes API: the embedded one, or a real one when
//! `TEST_KUBECONFIG` names it.

mod authority;
mod behind;
mod compression;
mod controllers;
mod csi;
mod devices;
mod enrolment;
mod forwarding;
mod identity;
mod jobs;
mod kubelet;
mod overview;
mod page;
mod pod_requests;
mod pods;
mod races;
mod registration;
mod replicas;
mod reports;
mod revocation;
mod rotation;
mod rules;
mod sessions;
mod strangers;
mod support;
mod survival;
mod two_bridges;
