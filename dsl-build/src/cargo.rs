//! What a build script learns from Cargo and tells it.

use crate::{BuildError, Report, write_to};
use std::path::{Path, PathBuf};

/// What Cargo tells a build script.
#[derive(Clone, Debug)]
pub(crate) struct Env {
    /// The package's folder.
    pub manifest_dir: PathBuf,
    /// The package's name.
    pub package: String,
    /// The build script's own folder, somewhere in the target folder.
    pub out_dir: PathBuf,
}

impl Env {
    pub fn of_build_script() -> Result<Env, BuildError> {
        let var = |name| std::env::var_os(name).ok_or(BuildError::Variable(name));
        Ok(Env {
            manifest_dir: var("CARGO_MANIFEST_DIR")?.into(),
            package: var("CARGO_PKG_NAME")?.to_string_lossy().into_owned(),
            out_dir: var("OUT_DIR")?.into(),
        })
    }

    /// `<target>/fuseline/<package>`, from `<target>[/<triple>]/<profile>/build/<unit>/out`.
    pub fn folder(&self) -> Result<PathBuf, BuildError> {
        let mut parents = self.out_dir.ancestors().skip(1);
        let profile = parents.find(|path| path.ends_with("build")).and_then(Path::parent);
        let target = profile.and_then(Path::parent).map(|folder| {
            // With `--target` there is a folder of the triple in between.
            let is_triple = folder.file_name().is_some_and(|name| {
                let name = name.to_string_lossy();
                name.matches('-').count() >= 2 && !folder.join("CACHEDIR.TAG").exists()
            });
            match folder.parent() {
                Some(parent) if is_triple => parent,
                Some(_) | None => folder,
            }
        });
        match target {
            Some(target) => Ok(target.join("fuseline").join(&self.package)),
            None => Err(BuildError::TargetFolder { out_dir: self.out_dir.clone() }),
        }
    }
}

/// Writes the blocks of a package's crate.
pub(crate) fn write(root: &Path, env: &Env) -> Result<Report, BuildError> {
    write_to(&env.manifest_dir.join(root), &env.folder()?)
}

/// The lines that tell Cargo what to watch and what to show.
pub(crate) fn instructions(report: &Report) -> Vec<String> {
    // Only what was read: files that this run has just written would look newer than it.
    let mut lines: Vec<String> = report
        .sources
        .iter()
        .map(|path| format!("cargo::rerun-if-changed={}", path.display()))
        .collect();
    // One line each, or Cargo would read the second as an instruction.
    let warnings = report.warnings.iter().map(|text| text.replace('\n', " "));
    lines.extend(warnings.map(|text| format!("cargo::warning={text}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::{Duration, SystemTime};

    const MAIN: &str = "
        mod blocks;
        fn main() {}
    ";
    const BLOCKS: &str = "
        pub mod inner;
        #[fuseline::decode(D = 64, small { F = 33 }, large { F = 66 })]
        pub mod net {
            pub fn up(x: Tensor<f32, D>, w: Weight<Q8_0, F, D>) -> Tensor<f32, F> { x.linear(w) }
            fn unused(x: Tensor<f32, D>) -> Tensor<f32, D> { x }
        }
    ";
    const INNER: &str = "
        pub mod deeper {
            #[decode(D = 7)]
            pub fn gate(x: Tensor<f32, D>) -> Tensor<f32, D> { x.silu() }
        }
    ";

    /// A package in a folder that is removed afterwards, built by Cargo with `--target` or not.
    fn package(files: &[(&str, &str)], triple: &str) -> (tempfile::TempDir, Env) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let target = folder.path().join("target").join(triple);
        let env = Env {
            manifest_dir: folder.path().to_path_buf(),
            package: "chat".to_string(),
            out_dir: target.join("debug/build/chat-0123456789abcdef/out"),
        };
        (folder, env)
    }

    #[test]
    fn blocks_of_all_files_are_written_under_their_paths() {
        let files =
            [("src/main.rs", MAIN), ("src/blocks.rs", BLOCKS), ("src/blocks/inner.rs", INNER)];
        let (folder, env) = package(&files, "");
        let report = write(Path::new("src/main.rs"), &env).unwrap();
        assert_eq!(report.warnings, [""; 0]);
        let sources: Vec<PathBuf> =
            files.iter().map(|(name, _)| folder.path().join(name)).collect();
        assert_eq!(report.sources, sources);
        let home = folder.path().join("target/fuseline/chat");
        let mut expected = Vec::new();
        for block in ["blocks/inner/deeper/gate", "blocks/net/small/up", "blocks/net/large/up"] {
            expected.extend(["cu", "plan", "ir"].map(|end| home.join(format!("{block}.{end}"))));
        }
        assert_eq!(report.files, expected);
        let text = |name| fs::read_to_string(home.join(name)).unwrap();
        assert!(text("blocks/net/large/up.ir").contains("F:66"));
        assert!(text("blocks/net/small/up.plan").contains("linear[1 x 64]"));
        assert!(text("blocks/inner/deeper/gate.cu").contains("fl_silu"));
        for path in &report.files {
            let parent = path.parent().unwrap();
            let names = fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().file_name());
            assert!(names.into_iter().all(|name| !name.to_string_lossy().contains("part")));
        }
    }

    #[test]
    fn a_folder_of_the_target_triple_is_left_out() {
        let (folder, env) = package(&[], "x86_64-unknown-linux-gnu");
        assert_eq!(env.folder().unwrap(), folder.path().join("target/fuseline/chat"));
        let out_dir = PathBuf::from("elsewhere/out");
        let lost = Env { out_dir, ..env }.folder().unwrap_err();
        assert!(lost.to_string().contains("elsewhere"), "{lost}");
    }

    #[test]
    fn a_file_with_its_text_is_not_touched() {
        let source = "#[decode(D = 5)] fn id(x: Tensor<f32, D>) -> Tensor<f32, D> { x.exp() }";
        let (folder, env) = package(&[("src/main.rs", source)], "");
        let report = write(Path::new("src/main.rs"), &env).unwrap();
        let past = SystemTime::now() - Duration::from_secs(3600);
        let set_past = |path: &Path| fs::File::options().write(true).open(path)?.set_modified(past);
        report.files.iter().for_each(|path| set_past(path).unwrap());
        let changed = source.replace("exp", "log");
        fs::write(folder.path().join("src/main.rs"), source).unwrap();
        write(Path::new("src/main.rs"), &env).unwrap();
        let age = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        assert!(report.files.iter().all(|path| age(path) < past + Duration::from_secs(60)));
        fs::write(folder.path().join("src/main.rs"), changed).unwrap();
        write(Path::new("src/main.rs"), &env).unwrap();
        assert!(report.files.iter().all(|path| age(path) > past + Duration::from_secs(60)));
    }

    #[test]
    fn wrong_blocks_and_missing_files_are_warnings() {
        let source = "
            mod gone;
            #[decode(D = 5)] fn wrong(x: Tensor<f32, D>) -> Tensor<f32, D> { x.frobnicate() }
            #[decode(D = 5)] fn right(x: Tensor<f32, D>) -> Tensor<f32, D> { x.exp() }
        ";
        let (_folder, env) = package(&[("src/main.rs", source)], "");
        let report = write(Path::new("src/main.rs"), &env).unwrap();
        assert_eq!(report.files.len(), 3);
        assert!(report.files[0].ends_with("chat/right.cu"));
        assert_eq!(report.warnings.len(), 2, "{:?}", report.warnings);
        assert!(report.warnings[0].contains("gone"), "{:?}", report.warnings);
        assert!(report.warnings[1].contains("frobnicate"), "{:?}", report.warnings);
        let lines = instructions(&report);
        let watched = |line: &&String| line.starts_with("cargo::rerun-if-changed=");
        // The one source, and none of the files that were written.
        assert_eq!(lines.iter().filter(watched).count(), 1);
        assert_eq!(lines.iter().filter(|line| line.starts_with("cargo::warning=")).count(), 2);
        assert!(lines.iter().all(|line| !line.contains('\n')));
    }

    #[test]
    fn a_file_that_is_no_rust_is_a_warning_and_a_missing_root_an_error() {
        let (_folder, env) = package(&[("src/main.rs", "fn main( {")], "");
        let report = write(Path::new("src/main.rs"), &env).unwrap();
        assert_eq!((report.files.len(), report.warnings.len()), (0, 1));
        let error = write(Path::new("src/lib.rs"), &env).unwrap_err();
        assert!(matches!(error, BuildError::Read { .. }), "{error}");
    }
}
