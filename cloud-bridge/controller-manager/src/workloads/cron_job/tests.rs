//! CronJobs in the model of the API.

use apimachinery::key::ObjectKey;
use serde_json::{Value, json};

use crate::workloads::plan::Action;
use crate::workloads::simulation::{Course, Model, Named, key, owned, seeds};
use crate::workloads::world::Kind;

fn cron_job(spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"},
        "spec": {
            "schedule": "* * * * *", "timeZone": "UTC", "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {
                // The Jobs are another controller's: the tests end them.
                "managedBy": "test", "template": {"spec": {"containers": []}},
            }},
        },
    });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object
}

fn jobs(model: &Model) -> Vec<&Value> {
    owned(model, Kind::Job, &model.get(Kind::CronJob, "tick")["metadata"]["uid"]).collect()
}

fn is_over(job: &Value) -> bool {
    !job["status"]["conditions"].is_null()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn running(model: &Model) -> usize {
    jobs(model).iter().filter(|job| !is_over(job)).count()
}

fn end(course: &mut Course, key: &ObjectKey, kind: &str) {
    let stamp = course.model.clock().to_string();
    course.model.change(Kind::Job, key, |job| {
        job["status"] = json!({"startTime": job["metadata"]["creationTimestamp"], "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": stamp},
        ]});
        if kind == "Complete" {
            job["status"]["completionTime"] = stamp.into();
        }
    });
}

/// No time has two Jobs, and under `Forbid` and `Replace` no two run at once.
fn sound(model: &Model, action: &Action) {
    if !model.objects.contains_key(&(Kind::CronJob, key("tick"))) {
        return;
    }
    let policy = model.get(Kind::CronJob, "tick")["spec"]["concurrencyPolicy"].as_str().unwrap_or("Allow").to_owned();
    let mut notes = model.notes.borrow_mut();
    if let crate::workloads::plan::Write::Create(job) = &action.write
        && model.objects.contains_key(&(Kind::Job, key(name(job.own()))))
    {
        let uid = &model.get(Kind::Job, name(job.own()))["metadata"]["uid"];
        let times = notes.entry(format!("{} {uid}", name(job.own()))).or_default();
        *times += 1;
        let made = notes.keys().filter(|one| one.starts_with(&format!("{} ", name(job.own())))).count();
        assert_eq!(made, 1, "{} is made twice", name(job.own()));
    }
    if policy != "Allow" {
        assert!(running(model) <= 1, "{policy}: {} run", running(model));
    }
}

fn course(spec: Value) -> Course {
    let mut course = Course::new(1, sound);
    course.calm = true;
    course.model.put(Kind::CronJob, cron_job(spec));
    course
}

fn pass(course: &mut Course, minutes: i64) {
    for _ in 0..minutes * 6 {
        course.step(10);
    }
}

/// S15: whatever is killed, lost or late, each time of a schedule has at most one Job, and the last one has it.
#[test]
fn s15_a_cron_job_runs_once_for_a_time() {
    for seed in seeds() {
        let _named = Named(seed);
        let mut course = Course::new(seed, sound);
        let policy = ["Allow", "Forbid", "Replace"][usize::try_from(seed % 3).unwrap()];
        course.model.put(Kind::CronJob, cron_job(json!({"concurrencyPolicy": policy})));
        for _ in 0..80 {
            for key in course.model.names(Kind::Job) {
                let over = is_over(&course.model.objects[&(Kind::Job, key.clone())]);
                match course.chance.below(6) {
                    0 if !over => end(&mut course, &key, "Failed"),
                    1 | 2 if !over => end(&mut course, &key, "Complete"),
                    _ => {}
                }
            }
            if course.chance.one_in(20) {
                course.restart();
            }
            let seconds = course.chance.below(40).cast_signed();
            course.step(seconds);
        }
        course.calm = true;
        for key in course.model.names(Kind::Job) {
            if !is_over(&course.model.objects[&(Kind::Job, key.clone())]) {
                end(&mut course, &key, "Complete");
            }
        }
        pass(&mut course, 2);
        let minute = course.model.clock().as_second() / 60;
        // The minute may have begun just now; under `Forbid` the Job of the one before still runs.
        let last = format!("tick-{}", if policy == "Forbid" { minute - 2 } else { minute - 1 });
        let names: Vec<&str> = jobs(&course.model).into_iter().map(name).collect();
        assert!(names.iter().any(|name| *name >= last.as_str()), "{last} is not among {names:?}");
        let active = course.model.get(Kind::CronJob, "tick")["status"]["active"].as_array().map_or(0, Vec::len);
        assert_eq!(active, running(&course.model));
        let over = jobs(&course.model).iter().filter(|job| is_over(job)).count();
        assert!(over <= 4, "{over} are kept");
    }
}

#[test]
fn a_job_is_of_the_template_and_its_time() {
    let mut course = course(json!({"timeZone": "UTC"}));
    pass(&mut course, 1);
    let minute = course.model.clock().as_second() / 60;
    let job = course.model.get(Kind::Job, &format!("tick-{minute}"));
    assert_eq!(job["metadata"]["labels"], json!({"a": "b"}));
    let time = jiff::Timestamp::from_second(minute * 60).unwrap().to_string();
    assert_eq!(job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"], time);
    assert_eq!(job["metadata"]["ownerReferences"][0]["kind"], "CronJob");
    assert_eq!(job["metadata"]["ownerReferences"][0]["controller"], true);
    let status = &course.model.get(Kind::CronJob, "tick")["status"];
    assert_eq!(status["lastScheduleTime"], time);
    assert_eq!(status["active"][0]["name"], name(job));
    assert_eq!(status["active"][0]["uid"], job["metadata"]["uid"]);
    let key = key(name(job));
    end(&mut course, &key, "Complete");
    course.step(1);
    let status = &course.model.get(Kind::CronJob, "tick")["status"];
    assert_eq!(status["active"], Value::Null);
    assert_eq!(status["lastSuccessfulTime"], course.model.objects[&(Kind::Job, key)]["status"]["completionTime"]);
}

#[test]
fn policies_say_what_becomes_of_a_job_that_still_runs() {
    for (policy, wanted) in [("Allow", 5), ("Forbid", 1), ("Replace", 1)] {
        let mut course = course(json!({"concurrencyPolicy": policy}));
        pass(&mut course, 5);
        assert_eq!(running(&course.model), wanted, "{policy}");
        let last = name(jobs(&course.model).last().unwrap()).to_owned();
        let minute = course.model.clock().as_second() / 60;
        let kept = if policy == "Forbid" { minute - 4 } else { minute };
        assert_eq!(last, format!("tick-{kept}"), "{policy}");
    }
}

#[test]
fn of_many_missed_times_the_last_one_runs_unless_it_is_too_late() {
    for (deadline, late, wanted) in [(Value::Null, 45, 1), (json!(60), 45, 1), (json!(30), 45, 0), (json!(200), 45, 1)]
    {
        let mut course = course(json!({"suspend": true, "startingDeadlineSeconds": deadline}));
        course.step(300 * 60);
        let second = course.model.clock().as_second() % 60;
        course.step(60 - second + late);
        assert_eq!(jobs(&course.model).len(), 0, "suspended");
        course.model.change(Kind::CronJob, &key("tick"), |one| one["spec"]["suspend"] = false.into());
        course.step(0);
        assert_eq!(jobs(&course.model).len(), wanted, "{deadline} {late}");
    }
}

#[test]
fn a_clock_that_cannot_be_right_fires_nothing() {
    let mut course = course(json!({}));
    pass(&mut course, 1);
    assert_eq!(jobs(&course.model).len(), 1);
    // Back before the last time, then before any.
    for back in [600, course.model.clock().as_second() - 1_700_000_000] {
        let before = jobs(&course.model).len();
        course.model.turn_clock(-back);
        pass(&mut course, 5);
        assert_eq!(jobs(&course.model).len(), before, "{back}");
    }
    course.model.turn_clock(1_800_000_000 - course.model.clock().as_second());
    course.step(10);
    assert_eq!(jobs(&course.model).len(), 2);
}

#[test]
fn a_device_that_does_not_know_the_time_runs_nothing() {
    for (second, wanted) in [(1_704_067_200 - 600, 0), (1_704_067_200 + 600, 1)] {
        let mut course = Course::new(1, sound);
        course.calm = true;
        course.model.turn_clock(second - course.model.clock().as_second());
        course.model.put(Kind::CronJob, cron_job(json!({"concurrencyPolicy": "Forbid"})));
        pass(&mut course, 5);
        assert_eq!(jobs(&course.model).len(), wanted, "{second}");
    }
}

#[test]
fn last_time_far_ahead_is_forgotten() {
    let mut course = course(json!({}));
    pass(&mut course, 1);
    course.model.change(Kind::CronJob, &key("tick"), |one| {
        one["status"]["lastScheduleTime"] = "2099-01-01T00:00:00Z".into();
    });
    pass(&mut course, 3);
    assert_eq!(jobs(&course.model).len(), 4, "one before, and one each minute after");
    assert!(course.model.get(Kind::CronJob, "tick")["status"]["lastScheduleTime"].as_str().unwrap() < "2099");
}

#[test]
fn changed_schedule_runs_no_time_of_the_past() {
    // The test begins at 09:46:40; the schedule is changed to a time of today that has passed.
    let mut course = course(json!({"schedule": "0 12 * * *"}));
    pass(&mut course, 3 * 60);
    assert_eq!(jobs(&course.model).len(), 1, "{}", course.model.clock());
    pass(&mut course, 20 * 60);
    course.model.change(Kind::CronJob, &key("tick"), |one| one["spec"]["schedule"] = "0 6 * * *".into());
    pass(&mut course, 5);
    assert_eq!(jobs(&course.model).len(), 1, "{}", course.model.clock());
    // Also not after a restart, which did not see the change.
    course.restart();
    pass(&mut course, 5);
    assert_eq!(jobs(&course.model).len(), 1);
    pass(&mut course, 24 * 60);
    assert_eq!(jobs(&course.model).len(), 2, "it runs at its new time");
}

#[test]
fn what_cannot_be_read_makes_nothing() {
    for spec in [json!({"schedule": "often"}), json!({"timeZone": "Nowhere"}), json!({"schedule": "0 0 31 2 *"})] {
        let mut course = course(spec.clone());
        pass(&mut course, 3);
        assert_eq!(jobs(&course.model).len(), 0, "{spec}");
    }
}

#[test]
fn a_job_of_which_none_is_kept_is_told_of_before_it_goes() {
    let mut course = course(json!({"successfulJobsHistoryLimit": 0}));
    pass(&mut course, 1);
    let key = key(name(jobs(&course.model)[0]));
    end(&mut course, &key, "Complete");
    let time = course.model.clock().to_string();
    course.step(1);
    assert_eq!(jobs(&course.model).len(), 0);
    let status = &course.model.get(Kind::CronJob, "tick")["status"];
    assert_eq!((&status["lastSuccessfulTime"], &status["active"]), (&json!(time), &Value::Null));
}

/// Names contain the minute, as in Kubernetes: a schedule with more times than that creates one Job a minute, without
/// errors.
#[test]
fn a_schedule_of_more_than_a_time_a_minute_has_a_job_a_minute() {
    for policy in ["Allow", "Forbid"] {
        let mut course = course(json!({"schedule": "@every 20s", "concurrencyPolicy": policy}));
        let mut minutes = std::collections::BTreeSet::new();
        for _ in 0..60 {
            course.step(10);
            for key in course.model.names(Kind::Job) {
                minutes.insert(key.name.clone());
                if !is_over(&course.model.objects[&(Kind::Job, key.clone())]) {
                    end(&mut course, &key, "Complete");
                }
            }
        }
        assert!((9..=11).contains(&minutes.len()), "{policy}: {minutes:?}");
        assert!(course.model.writes < 200, "{policy}: {} writes", course.model.writes);
    }
}
