use clap::Parser as _;

use super::*;
use crate::audit::Action;

fn parse(text: &str, flags: &[&str]) -> Result<Config, String> {
    let flags = Flags::parse_from(["vcuda-manager"].iter().chain(flags));
    let parsed = Config::parse(text, Path::new("m.toml"), &flags).and_then(Config::check);
    parsed.map_err(|error| error.to_string())
}

#[test]
fn an_empty_file_is_the_defaults() {
    let config = parse("", &[]).unwrap();
    assert_eq!(config.root, Path::new("/run/vcuda"));
    assert_eq!(config.admission.reserve_bytes_per_sharer, 512 << 20);
    assert_eq!(config.admission.sharers_max, 16);
    assert_eq!(config.metrics.listen.0, Some("127.0.0.1:9436".parse().unwrap()));
    assert_eq!(config.api.mode, 0o660);
    assert!(config.needs_restart(&config).is_empty());
}

#[test]
fn the_documented_file_is_the_defaults() {
    let documented = include_str!("../../../deploy/manager.toml");
    let node = ["--node", "n"];
    assert_eq!(parse(documented, &node).unwrap(), parse("", &node).unwrap());
    for table in ["", "[namespaces.a]", "[users.1000]"] {
        let all = keys(table).unwrap();
        assert!(!all.is_empty());
        for key in &all {
            let of_table = keys(&format!("[{key}]")).unwrap_or_default();
            for key in of_table.iter().chain([key]) {
                let is_there = [format!("{key} = "), format!("[{key}]"), format!("[{key}.")];
                let is_documented = is_there.iter().any(|text| documented.contains(text));
                assert!(is_documented, "deploy/manager.toml has no key or table {key}");
            }
        }
    }
}

/// A reload says that these keys wait for a restart.
#[test]
fn what_is_marked_restart_is_compared_at_a_reload() {
    let config = parse("", &["--node", "n"]).unwrap();
    let compared = config.compared(&config).map(|(name, _)| name);
    let (mut table, mut is_marked, mut marked) = ("", false, 0);
    for line in include_str!("../../../deploy/manager.toml").lines() {
        let key = line.trim_start_matches("# ").split_once(" = ").map(|(key, _)| key);
        if let Some(name) = line.strip_prefix('[') {
            table = name.trim_end_matches(']');
        } else if let Some(key) = key.filter(|key| !key.contains(' ')) {
            let path = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
            let is_compared = compared.contains(&table) || compared.contains(&path.as_str());
            assert!(!is_marked || is_compared, "{path} is missing in `Config::compared`");
            marked += u32::from(is_marked);
            is_marked = false;
        } else {
            is_marked = line.starts_with('#') && (is_marked || line.contains("(restart)"));
        }
    }
    assert!(marked > 10, "{marked}");
}

/// The keys of a table, as the error for an unknown one lists them; `None` if there is no such table.
fn keys(table: &str) -> Option<Vec<String>> {
    let error = parse(&format!("{table}\nno_such_key = 1"), &[]).err()?;
    let (_, known) = error.split_once("unknown field `no_such_key`, expected ")?;
    Some(known.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

#[test]
fn flags_win() {
    let config =
        parse("root = \"/a\"\n[metrics]\nlisten = \"0.0.0.0:1\"", &["--root", "/b", "--metrics", "off"])
            .unwrap();
    assert_eq!((config.root.as_path(), config.metrics.listen.0), (Path::new("/b"), None));
}

#[test]
fn errors_name_line_value_and_remedy() {
    for (text, expected) in [
        ("\n\nroot = 7", "m.toml:3: "),
        ("rot = \"/a\"", "m.toml:1: unknown field `rot`"),
        ("[admission]\nreserve = \"512\"", "m.toml:2: '512': a number without a unit"),
        ("[admission]\nmemory_overcommit = 0.5", "m.toml:2: 0.5: outside 1 to 10"),
        ("[admission]\nsharers_max = 0", "m.toml:2: 0: outside 1 to 512"),
        ("[metrics]\nlisten = \"here\"", "m.toml:2: 'here': neither an address with port"),
        ("[api]\nmode = \"0999\"", "m.toml:2: '0999': not permissions"),
        ("[api]\nmode = \"0667\"", "m.toml:2: '0667': everybody could"),
        ("[api]\ngroup = \"no-such-group\"", "m.toml:2: 'no-such-group': no such group"),
        ("[api]\nviewers = [\"no-such-group\"]", "m.toml:2: 'no-such-group': no such group"),
        ("[audit]\ninterval = \"1ms\"", "m.toml:2: '1ms': outside"),
        ("[namespaces.a]\npriority_max = \"top\"", "m.toml:2: "),
        ("[namespaces.a]\npolicies = []", "m.toml:2: []: no policy"),
        ("[namespaces.a]\ncores_max = \"101\"", "m.toml:2: '101': outside"),
        ("[namespaces.a]\nweight_max = 0", "m.toml:2: 0: outside"),
        ("[namespaces.A_b]\nweight_max = 1", "m.toml:1: namespaces.\"A_b\": neither"),
        ("[audit]\naction = \"end\"", "m.toml:2: "),
        ("[suspend]\nresidence = \"5\"", "m.toml:2: '5': outside 100ms to 24h"),
        ("[suspend]\nresidence = \"25h\"", "m.toml:2: '25h': outside 100ms to 24h"),
        ("[admission]\nsuspendable_overcommit = 0.5", "m.toml:2: 0.5: outside 1 to 10"),
        ("[namespaces.a]\naudit_action = 1", "m.toml:2: "),
        ("state = \"/run/vcuda/state\"", "lie in each other"),
        ("root = \"here\"", "absolute path"),
        ("[log]\nfilter = \"vcuda=loud\"", "m.toml:2: 'vcuda=loud'"),
    ] {
        let error = parse(text, &[]).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let flags = Flags::try_parse_from(["vcuda-manager", "--log", "vcuda=loud"]);
    assert!(flags.unwrap_err().to_string().contains("for example"));
}

#[test]
fn all_that_is_wrong_is_named_at_once() {
    let text = "root = \"here\"\nstate = \"here/state\"\nnode = \"a b\"\n[health]\nclean_probes = 0";
    let error = parse(text, &[]).unwrap_err();
    for part in
        ["root = \"here\"", "state = \"here/state\"", "lie in each other", "node = \"a b\"", "health: "]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
    let missing = "nvml_library = \"/no/nvml\"\ncuda_library = \"/no/cuda\"";
    let error = parse(missing, &[]).unwrap().check_files().unwrap_err().to_string();
    assert!(error.contains("\"/no/nvml\"") && error.contains("\"/no/cuda\""), "{error}");
}

#[test]
fn a_wrong_user_or_limit_is_named() {
    for (text, expected) in [
        (
            "[users.no-such-user]\nmemory = \"1GiB\"",
            "m.toml:1: users.\"no-such-user\": no such user; write a user, \"@GROUP\"",
        ),
        ("[users.\"@no-such-group\"]", "m.toml:1: users.\"@no-such-group\": no such group"),
        ("[users.1000]\nmemory = \"much\"", "m.toml:2: 'much': not a number"),
        ("[users.\"*\"]\ncores = \"half\"", "m.toml:2: 'half': not a percentage"),
    ] {
        let error = parse(text, &[]).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn users_are_named_or_members_of_a_group_or_all_others() {
    let text = "[users.1000]\nmemory = \"8GiB\"\ncores = \"12.5\"\n[users.\"@50\"]\ncores = \"250\"\n[users.\"*\"]\nmemory = \"1GiB\"";
    let users = parse(text, &[]).unwrap().users;
    let limit = |uid, groups: &[u32]| users.of(uid, groups).unwrap();
    let own = limit(1000, &[50]);
    assert_eq!((own.memory_bytes, own.cores_permille), (Some(8 << 30), Some(125)));
    assert_eq!((limit(1, &[50]).cores_permille, limit(1, &[50]).place.as_str()), (Some(2500), "@50"));
    assert_eq!(limit(1, &[]).memory_bytes, Some(1 << 30));
}

#[test]
fn what_the_audit_does_is_by_namespace() {
    let acts = |text: &str| {
        let actions = parse(text, &[]).unwrap().audit_actions();
        ["", "a", "b"].map(|namespace| actions.for_namespace(namespace))
    };
    let (report, kill) = (Action::Report, Action::Kill);
    assert_eq!(acts(""), [report; 3]);
    assert_eq!(acts("[audit]\naction = \"kill\""), [kill; 3]);
    let but_a = "[audit]\naction = \"kill\"\n[namespaces.a]\naudit_action = \"report\"";
    assert_eq!(acts(but_a), [kill, report, kill]);
    assert_eq!(acts("[namespaces.a]\naudit_action = \"kill\""), [report, kill, report]);
    let others = "[namespaces.\"*\"]\naudit_action = \"kill\"\n[namespaces.b]\npolicies = [\"fixed\"]";
    assert_eq!(acts(others), [kill; 3]);
}

#[test]
fn a_named_file_must_be_there() {
    let flags = Flags::parse_from(["vcuda-manager", "--config", "/nowhere/m.toml"]);
    let error = Config::load(&flags).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/m.toml: "), "{error}");
}
