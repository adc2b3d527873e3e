//! Tests of the file's form.

use super::*;

fn parsed(text: &str) -> Result<Vec<Wanted>, String> {
    parse(Path::new("g.yaml"), text).map_err(|failure| failure.to_string())
}

#[test]
fn fields_are_the_options_of_grant_create() {
    let grants = parsed(
        "# comment\ngrants:\n- name: web\n  memory: 4GiB\n  cores: 30\n  policy: burst\n  cores-max: 60.5\n  \
         weight: 7\n  priority: high\n  gpus: 2\n  suspendable: true\n  wait-for-memory: 30s\n- {name: batch, gpu: [GPU-a, GPU-b]}\n",
    )
    .unwrap();
    assert_eq!((grants[0].line, grants[1].line), (3, 13));
    assert_eq!(
        grants[0].quota,
        Quota {
            memory_bytes: Some(4 << 30),
            cores_permille: 300,
            cores_max_permille: 605,
            policy: Policy::Burst,
            priority: Priority::High,
            weight: Some(7),
        }
    );
    assert_eq!(grants[0].gpus, WantedGpus::Number(Some(2)));
    let suspension = |wanted: &Wanted| (wanted.is_suspendable, wanted.memory_wait_ms);
    assert_eq!(suspension(&grants[0]), (true, Some(30_000)));
    assert_eq!(suspension(&grants[1]), (false, None));
    assert_eq!(grants[1].quota, Quota::UNLIMITED);
    assert_eq!(grants[1].gpus, WantedGpus::Named(vec!["GPU-a".to_owned(), "GPU-b".to_owned()]));
    assert_eq!(parsed("grants: []").unwrap(), []);
}

fn refused(cases: &[(String, &str)]) {
    for (text, said) in cases {
        let error = parsed(text).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
        assert!(!error.contains('\n') && error.starts_with("g.yaml:"), "{error}");
    }
}

fn of(field: &str) -> String {
    format!("grants:\n- name: web\n  {field}\n")
}

#[test]
fn a_wrong_value_is_told_with_line_field_and_remedy() {
    refused(&[
        (of("memory: 4"), "g.yaml:3: memory '4': a number without a unit; write for example 4GiB"),
        (of("memory: 4 parsecs"), "g.yaml:3: memory '4 parsecs': unknown unit 'parsecs'"),
        (of("memory: 1MiB"), "g.yaml:3: memory '1MiB': 1 MiB is less than 64 MiB"),
        (of("cores: 101"), "g.yaml:3: cores '101': outside 0.1 to 100"),
        (of("policy: brust"), "g.yaml:3: policy 'brust': write fixed, burst or best-effort"),
        (of("weight: 0"), "g.yaml:3: weight '0': write a whole number of 1 to 10000"),
        (of("gpus: 17"), "g.yaml:3: gpus '17': write a number of 1 to 16"),
        (of("user: no-such-user"), "g.yaml:3: user no-such-user: no such user; give a name or a number"),
        (of("suspendable: maybe"), "g.yaml:3: suspendable 'maybe': write true or false"),
        (
            of("wait-for-memory: 30"),
            "g.yaml:3: wait-for-memory '30': not a time; write for example 30s, 2m or 0s",
        ),
        (of("gpu: ['0']"), "g.yaml:3: gpu '0': write a UUID"),
    ]);
}

#[test]
fn a_wrong_form_is_told_with_line_and_field() {
    refused(&[
        (of("memry: 4GiB"), "g.yaml:3: unknown field 'memry'; there are name, memory, cores, cores-max"),
        (of("cores: 1\n  cores: 2"), "g.yaml:4: field 'cores' is there twice"),
        (of("cores-max: 50"), "g.yaml:2: cores-max '50': a fixed grant has at most its cores"),
        (of("gpus: 1\n  gpu: [GPU-a]"), "g.yaml:2: web: gpu names the GPUs"),
        (of("memory: 4GiB\n- name: web"), "g.yaml:4: name 'web': line 2 has it already"),
        ("grants:\n- memory: 4GiB\n".to_owned(), "field 'name' is missing"),
        ("grants:\n- name: a b\n".to_owned(), "g.yaml:2: name 'a b': give 1 to 40 letters"),
        ("grant: []\n".to_owned(), "g.yaml:1: unknown field 'grant'; there are grants"),
        ("grants: 7\n".to_owned(), "g.yaml:1: "),
        ("grants: [\n".to_owned(), "g.yaml:"),
        ("".to_owned(), "g.yaml:1: "),
    ]);
}
