//! `vcuda apply` with a real manager: the file is the truth, applied twice it changes nothing, and a wrong file changes nothing.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use serde_json::Value;
use vcuda_manager_api::v1;
use vcuda_manager_api::v1::grants_client::GrantsClient;
use vcuda_tests::{Door, Fixture, MIB, Manager, app, holding, succeeded, text};

const FILE: &str = "\
grants:
  - name: web
    memory: 4GiB
    cores: 30
  - name: batch
    memory: 2GiB
    policy: best-effort
    gpus: 2
";

struct Node {
    fixture: Fixture,
}

impl Node {
    fn new() -> Self {
        let fixture = Fixture::with_gpus(2, "24GiB");
        Self { fixture }
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.fixture.home().join("grants.yaml");
        fs::write(&path, text).unwrap();
        path
    }

    fn try_apply(&self, text: &str, args: &[&str]) -> Output {
        let mut command = self.fixture.vcuda(["apply", "-f"]);
        command.arg(self.file(text)).args(args).output().unwrap()
    }

    fn apply(&self, text: &str, args: &[&str]) -> String {
        succeeded(&self.try_apply(text, args))
    }

    fn vcuda(&self, args: &[&str]) -> String {
        self.fixture.stdout(args)
    }

    fn grants(&self) -> Vec<Value> {
        let list: Value = serde_json::from_str(&self.vcuda(&["grant", "list", "--json"])).unwrap();
        list["grants"].as_array().unwrap().clone()
    }

    fn keys(&self) -> Vec<String> {
        let key = |grant: &Value| grant["key"].as_str().unwrap().to_owned();
        self.grants().iter().map(key).collect()
    }
}

/// Creates a grant as the device plugin does, for a pod.
fn grant_of_a_pod(manager: &Manager<'_>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let deadline = std::time::Duration::from_secs(30);
    let request = v1::CreateGrantRequest {
        request_id: "plugin".to_owned(),
        key: "dp-1".to_owned(),
        holder: Some(v1::Holder {
            namespace: "ml".to_owned(),
            pod: "train-0".to_owned(),
            ..v1::Holder::default()
        }),
        amounts: Some(v1::Amounts { memory_bytes: 1 << 30, ..v1::Amounts::default() }),
        gpu_count: 1,
        ..v1::CreateGrantRequest::default()
    };
    runtime.block_on(async {
        let channel = vcuda_manager_api::connect(&manager.socket(), deadline).await.unwrap();
        GrantsClient::new(channel).create(request).await.unwrap();
    });
}

#[test]
fn a_file_is_applied_once_and_then_changes_nothing() {
    let node = Node::new();
    let _manager = node.fixture.manager();
    node.vcuda(&["grant", "create", "other", "--memory", "1GiB"]);
    let shown = node.apply(FILE, &["--dry-run"]);
    assert_eq!(
        shown,
        "create web: 4 GiB, 30 % fixed on 1 GPU(s)\ncreate batch: 2 GiB, 100 % best-effort on 2 GPU(s)\n\
         2 of 2 grants would be changed\n"
    );
    assert_eq!(node.keys(), ["other"]);
    let done = node.apply(FILE, &[]);
    assert!(done.contains("web-2 created: 4 GiB, 30 % fixed on GPU-"), "{done}");
    assert!(done.ends_with("2 of 2 grants changed\n"), "{done}");
    assert_eq!(node.keys(), ["other", "web", "batch"]);
    let before = node.grants();
    assert_eq!(before[2]["gpu_uuids"].as_array().unwrap().len(), 2);
    assert_eq!(node.apply(FILE, &[]), "0 of 2 grants changed\n");
    assert_eq!(node.grants(), before);
    // A value that was changed by hand goes back, and one that the file changes follows.
    node.vcuda(&["set", "web", "--memory", "5GiB"]);
    let changed = FILE.replace("memory: 2GiB", "memory: 1GiB");
    assert_eq!(
        node.apply(&changed, &["--dry-run"]),
        "change web-2: memory 5 GiB -> 4 GiB\nchange batch-3: memory 2 GiB -> 1 GiB\n2 of 2 grants would be changed\n"
    );
    assert!(node.apply(&changed, &[]).contains("changed web-2: memory 5 GiB -> 4 GiB"));
    assert_eq!(node.grants()[1]["memory_bytes"], 4_u64 << 30);
}

#[test]
fn prune_releases_what_is_not_in_the_file_and_no_pods_grant_and_nothing_in_use_and_a_dry_run_says_so() {
    let node = Node::new();
    let manager = node.fixture.manager();
    grant_of_a_pod(&manager);
    for name in ["old", "used"] {
        node.vcuda(&["grant", "create", name, "--memory", "1GiB"]);
    }
    let used = holding(&mut node.fixture.in_grant("used", app("hold", Door::Dlsym)), 100 * MIB);
    assert_eq!(
        node.apply(FILE, &["--prune", "--dry-run"]),
        "release old-2: 1 GiB, no guarantee (what is left)\n\
         release used-3: 1 GiB, no guarantee (what is left); it would be refused: used-3 is in use: end its processes first, or \
         release it with --force (in the API: even_if_used)\n\
         create web: 4 GiB, 30 % fixed on 1 GPU(s)\ncreate batch: 2 GiB, 100 % best-effort on 2 GPU(s)\n\
         1 of 4 grants would be changed, up to the first that is refused\n"
    );
    let refused = node.try_apply(FILE, &["--prune"]);
    let said = text(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("release used-3") && said.contains("is in use"), "{said}");
    assert!(said.contains("1 of 4 changes were made"), "{said}");
    assert_eq!(node.keys(), ["dp-1", "used"]);
    drop(used);
    node.apply(FILE, &["--prune"]);
    assert_eq!(node.keys(), ["dp-1", "web", "batch"]);
    assert_eq!(node.apply(FILE, &["--prune"]), "0 of 2 grants changed\n");
    let of_pod = FILE.replace("name: web", "name: dp-1");
    let refused = node.try_apply(&of_pod, &[]);
    assert_eq!(refused.status.code(), Some(64), "{}", text(&refused));
    assert!(text(&refused).contains("grants.yaml:2: name 'dp-1': a grant of Kubernetes (ml/train-0)"));
}

#[test]
fn a_grant_is_made_suspendable_and_stays_what_it_is() {
    let node = Node::new();
    let _manager = node.fixture.manager();
    let file = FILE.replace("gpus: 2", "suspendable: true\n    wait-for-memory: 30s");
    node.apply(&file, &[]);
    let suspendable = |key: &str| {
        let grants = node.grants();
        let grant = grants.iter().find(|grant| grant["key"] == key).unwrap();
        grant["suspendable"] == true
    };
    assert!(suspendable("batch") && !suspendable("web"));
    assert_eq!(node.apply(&file, &[]), "0 of 2 grants changed\n");
    for (changed, said) in [
        (
            file.replace("suspendable: true", "suspendable: false"),
            "grants.yaml:5: name 'batch': batch-2 is suspendable, the file says it is not; that cannot be changed later",
        ),
        (
            file.replace("cores: 30", "cores: 20\n    suspendable: true"),
            "grants.yaml:2: name 'web': web-1 is not suspendable, the file says it is; that cannot be changed later",
        ),
        (
            file.replace("30s", "2m"),
            "grants.yaml:5: name 'batch': batch-2 waits 30s for memory, the file says wait-for-memory: 120s",
        ),
    ] {
        let refused = node.try_apply(&changed, &[]);
        assert_eq!(refused.status.code(), Some(64), "{}", text(&refused));
        assert!(text(&refused).contains(said), "{}", text(&refused));
    }
    assert_eq!(node.apply(&file, &[]), "0 of 2 grants changed\n", "nothing was changed");
}

#[test]
fn nothing_is_applied_if_anything_in_the_file_is_wrong() {
    let node = Node::new();
    let _manager = node.fixture.manager();
    for (wrong, said) in [
        (FILE.replace("memory: 2GiB", "memory: 2"), "grants.yaml:6: memory '2': a number without a unit"),
        (FILE.replace("gpus: 2", "gpus: 2\n    color: red"), "grants.yaml:9: unknown field 'color'"),
        (FILE.replace("gpus: 2", "gpu: [GPU-none]"), "grants.yaml:5: gpu GPU-none: the node has no such GPU"),
        (FILE.replace("grants:", "grants"), "grants.yaml:"),
    ] {
        let refused = node.try_apply(&wrong, &[]);
        assert_eq!(refused.status.code(), Some(64), "{}", text(&refused));
        assert!(text(&refused).contains(said), "{}", text(&refused));
        assert_eq!(node.keys(), [""; 0]);
    }
    // What does not fit is refused as it is made, as the dry run says: what was made before stays, and the file can be applied
    // again.
    let large = FILE.replace("memory: 2GiB", "memory: 30GiB");
    let shown = node.apply(&large, &["--dry-run"]);
    let refusal = "create batch: 30 GiB, 100 % best-effort on 2 GPU(s); it would be refused: 30 GiB is not free on 2 GPUs: ";
    assert!(shown.contains(refusal), "{shown}");
    assert!(shown.ends_with("1 of 2 grants would be changed, up to the first that is refused\n"), "{shown}");
    // Each change is checked after those before it.
    let beside = FILE.replace("memory: 4GiB", "memory: 20GiB\n    gpus: 2").replace("2GiB", "20GiB");
    let shown = node.apply(&beside, &["--dry-run"]);
    assert_eq!((shown.matches("it would be refused").count(), node.keys().len()), (1, 0), "{shown}");
    let refused = node.try_apply(&large, &[]);
    let said = text(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("create batch") && said.contains("1 of 2 changes were made"), "{said}");
    assert_eq!(node.keys(), ["web"]);
    // From stdin.
    let mut command = node.fixture.vcuda(["apply", "-f", "-"]);
    let mut applying = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    applying.stdin.take().unwrap().write_all(FILE.as_bytes()).unwrap();
    succeeded(&applying.wait_with_output().unwrap());
    assert_eq!(node.keys(), ["web", "batch"]);
    // It is GPUs that a grant keeps.
    let refused = node.try_apply(&FILE.replace("gpus: 2", "gpus: 1"), &[]);
    assert!(text(&refused).contains("a grant keeps its GPUs: release it first"), "{}", text(&refused));
}
