//! Which files of a crate need each other.
//!
//! A file needs another if it names, outside of its tests, something that the other defines. A name that a third file
//! only passes on (`pub use`) leads to the file that defines it. A part of a file may name what the file defines, and is
//! in the directory of its name: `act/send.rs` is a part of `act.rs`, and `read/mod.rs` of `store/mod.rs`.

mod tokens;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokens::{tokens, without_tests};

/// The sources of one crate: the path of each file below `src`, and its text.
pub(crate) type Sources = BTreeMap<String, String>;

/// Files that need each other: each names something of the next, the last something of the first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    /// The files, from the first in the alphabet.
    pub(crate) files: Vec<String>,
    /// One line for each step, with the names that it uses.
    pub(crate) steps: Vec<String>,
}

/// One circle, a shortest, through each file that is in any; no circle is listed twice.
pub(crate) fn circles(sources: &Sources) -> Vec<Circle> {
    let needs = needs(sources);
    let mut found: Vec<Circle> = Vec::new();
    for file in needs.keys() {
        let Some(files) = shortest_way_back(&needs, file) else {
            continue;
        };
        if found.iter().any(|circle| circle.files.contains(file)) {
            continue;
        }
        let next = files.iter().cycle().skip(1);
        let steps = files.iter().zip(next).map(|(from, to)| {
            let names: Vec<_> = needs[from][to].iter().map(String::as_str).collect();
            format!("{from} needs {} of {to}", names.join(", "))
        });
        let steps = steps.collect();
        found.push(Circle { files, steps });
    }
    found
}

/// File → the files that it needs, each with the names.
type Needs = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn shortest_way_back(needs: &Needs, start: &str) -> Option<Vec<String>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(file) = queue.pop_front() {
        for next in needs.get(file)?.keys() {
            if next == start {
                let mut way = vec![file.to_owned()];
                while let Some(earlier) = before.get(way.last()?.as_str()) {
                    way.push((*earlier).to_owned());
                }
                way.reverse();
                return Some(way);
            }
            if !before.contains_key(next.as_str()) {
                before.insert(next, file);
                queue.push_back(next);
            }
        }
    }
    None
}

fn needs(sources: &Sources) -> Needs {
    let files = sources.iter().map(|(path, text)| File::read(path, text));
    let modules: BTreeMap<_, _> = files.map(|file| (file.module.clone(), file)).collect();
    let tests: Vec<_> = modules.values().flat_map(File::test_modules).collect();
    let house = House { modules };
    let mut needs = Needs::new();
    for file in house.modules.values() {
        if tests.iter().any(|test| file.module.starts_with(test)) {
            continue;
        }
        let named = needs.entry(file.path.clone()).or_default();
        let imported = file.imports.iter().filter(|import| !import.is_passed_on);
        let imported = imported.map(|import| import.path.clone());
        // Of `use a::b::*`, the names that the file has.
        let of_glob = |glob: &Names| {
            file.words
                .iter()
                .map(move |word| [&**glob, std::slice::from_ref(word)].concat())
                .collect::<Vec<_>>()
        };
        let all = file.globs.iter().flat_map(of_glob);
        let of_globs = all.filter(|path| {
            let found = house.definition(file, path, 0);
            found.is_some_and(|(owner, name)| owner.defines.contains(&name))
        });
        for path in imported.chain(file.paths.iter().cloned()).chain(of_globs) {
            let Some((owner, name)) = house.definition(file, &path, 0) else {
                continue;
            };
            // The file itself, or one in whose directory it is.
            if !file.module.starts_with(&owner.module) {
                named.entry(owner.path.clone()).or_default().insert(name);
            }
        }
    }
    needs
}

type Names = Vec<String>;

struct Import {
    name: String,
    path: Names,
    /// `pub use`, of a name that the file itself does not use.
    is_passed_on: bool,
}

struct File {
    path: String,
    module: Names,
    /// With the functions inside of `impl`: more than the module defines does no harm.
    defines: BTreeSet<String>,
    imports: Vec<Import>,
    /// `use a::b::*`
    globs: Vec<Names>,
    /// Paths of two and more names that are not imports.
    paths: Vec<Names>,
    /// Every name.
    words: BTreeSet<String>,
    tests: Vec<String>,
}

struct House {
    modules: BTreeMap<Names, File>,
}

impl House {
    /// The file that defines what a path in `file` names, and its name; none if it is not of this crate or is a module.
    fn definition(&self, file: &File, path: &[String], depth: usize) -> Option<(&File, String)> {
        // An import that leads to itself.
        if depth > 16 {
            return None;
        }
        let (first, rest) = path.split_first()?;
        let mut module = file.module.clone();
        match first.as_str() {
            "crate" => module.clear(),
            "self" => {}
            "super" => {
                module.pop();
                let mut rest = rest;
                while rest.first().is_some_and(|name| name == "super") {
                    module.pop();
                    rest = &rest[1..];
                }
                return self.below(&module, rest, depth);
            }
            _ => {
                let is_import = |import: &&Import| import.name == *first && import.path != path;
                if let Some(import) = file.imports.iter().find(is_import) {
                    let path: Names = import.path.iter().chain(rest).cloned().collect();
                    return self.definition(file, &path, depth + 1);
                }
                module.push(first.clone());
                self.modules.get(&module)?;
            }
        }
        self.below(&module, rest, depth)
    }

    fn below(&self, module: &[String], rest: &[String], depth: usize) -> Option<(&File, String)> {
        let file = self.modules.get(module)?;
        let (name, further) = rest.split_first()?;
        let child: Names = module.iter().chain([name]).cloned().collect();
        let is_defined = file.defines.contains(name);
        if self.modules.contains_key(&child) && !(further.is_empty() && is_defined) {
            return self.below(&child, further, depth);
        }
        if !is_defined {
            if let Some(import) = file.imports.iter().find(|import| import.name == *name) {
                let path: Names = import.path.iter().chain(further).cloned().collect();
                return self.definition(file, &path, depth + 1);
            }
            for glob in &file.globs {
                let path: Names = glob.iter().chain(rest).cloned().collect();
                let found = self.definition(file, &path, depth + 1);
                if let Some((owner, name)) = found.filter(|(owner, name)| owner.defines.contains(name)) {
                    return Some((owner, name));
                }
            }
        }
        Some((file, name.clone()))
    }
}

impl File {
    fn read(path: &str, text: &str) -> Self {
        let mut module: Names = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if module
            .last()
            .is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str()))
        {
            module.pop();
        }
        let tokens = tokens(text);
        let (tokens, tests) = without_tests(&tokens);
        let mut file = Self {
            path: path.to_owned(),
            module,
            defines: BTreeSet::new(),
            imports: Vec::new(),
            globs: Vec::new(),
            paths: Vec::new(),
            words: tokens.iter().map(|token| (*token).to_owned()).collect(),
            tests,
        };
        file.take(&tokens);
        file
    }

    /// The modules that `#[cfg(test)] mod name;` declares.
    fn test_modules(&self) -> impl Iterator<Item = Names> {
        self.tests
            .iter()
            .map(|name| self.module.iter().chain([name]).cloned().collect())
    }

    fn take(&mut self, tokens: &[&str]) {
        let mut depth = 0_usize;
        // Where inline modules begin: `super` leads out of them first.
        let mut inline = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            match tokens[at] {
                "{" => depth += 1,
                "}" => {
                    depth = depth.saturating_sub(1);
                    inline.retain(|begins| *begins <= depth);
                }
                // Not the `use<'a>` of a type.
                "use" if tokens.get(at + 1) != Some(&"<") => {
                    at = self.take_imports(tokens, at, inline.len());
                    continue;
                }
                "mod" if tokens.get(at + 2) == Some(&"{") => {
                    inline.push(depth + 1);
                    self.defines.insert(tokens[at + 1].to_owned());
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" => {
                    self.defines.extend(tokens.get(at + 1).map(|name| (*name).to_owned()));
                }
                "macro_rules" => self.defines.extend(tokens.get(at + 2).map(|name| (*name).to_owned())),
                _ => {
                    let path = path_at(tokens, at);
                    at += (2 * path.len()).saturating_sub(2);
                    if path.len() > 1 {
                        self.paths.push(out_of(inline.len(), path));
                    }
                }
            }
            at += 1;
        }
    }

    /// The imports of the `use` at `at`, within so many inline modules; returns where it ends.
    fn take_imports(&mut self, tokens: &[&str], at: usize, inline: usize) -> usize {
        let (first, first_glob) = (self.imports.len(), self.globs.len());
        let end = self.take_use(tokens, at + 1, &[]);
        for glob in &mut self.globs[first_glob..] {
            *glob = out_of(inline, std::mem::take(glob));
        }
        let is_public = at > 0 && ["pub", ")"].contains(&tokens[at - 1]);
        let (before, after) = (&tokens[..at], &tokens[end..]);
        for import in &mut self.imports[first..] {
            import.path = out_of(inline, std::mem::take(&mut import.path));
            let is_name = |pair: &[&str]| pair[1] == import.name && pair[0] != "mod";
            let is_used = [before, after].into_iter().any(|tokens| tokens.windows(2).any(is_name));
            import.is_passed_on = is_public && !is_used;
        }
        end
    }

    /// One tree of a `use`, from `at`; returns where it ends.
    fn take_use(&mut self, tokens: &[&str], mut at: usize, before: &[String]) -> usize {
        let mut path = before.to_vec();
        while at < tokens.len() {
            match tokens[at] {
                "{" => {
                    at += 1;
                    while at < tokens.len() && tokens[at] != "}" {
                        at = self.take_use(tokens, at, &path);
                        at += usize::from(tokens.get(at) == Some(&","));
                    }
                    return at + 1;
                }
                "*" => {
                    self.globs.push(path);
                    return at + 1;
                }
                "::" => at += 1,
                "," | ";" | "}" => {
                    self.import(path, None);
                    return at;
                }
                "as" => {
                    self.import(path, tokens.get(at + 1).copied());
                    return at + 2;
                }
                name => {
                    path.push(name.to_owned());
                    at += 1;
                }
            }
        }
        at
    }

    fn import(&mut self, mut path: Names, alias: Option<&str>) {
        // `use a::b::{self}`
        if path.len() > 1 {
            path.pop_if(|last| last == "self");
        }
        let Some(last) = path.last() else { return };
        let name = alias.unwrap_or(last).to_owned();
        self.imports.push(Import {
            name,
            path,
            is_passed_on: false,
        });
    }
}

/// A path within so many inline modules, as the file itself would write it: `super` leads out of them first.
fn out_of(inline: usize, path: Names) -> Names {
    let supers = path.iter().take_while(|name| *name == "super").count();
    match supers {
        0 => path,
        _ if supers > inline => path[inline..].to_vec(),
        _ => [&["self".to_owned()], &path[supers..]].concat(),
    }
}

/// The path that begins at a token; empty if none does.
fn path_at(tokens: &[&str], at: usize) -> Names {
    let is_name = |token: &&&str| token.starts_with(|first: char| first.is_alphabetic() || first == '_');
    let mut path = Names::new();
    if at > 0 && tokens[at - 1] == "::" {
        return path;
    }
    let mut next = at;
    while let Some(name) = tokens.get(next).filter(is_name) {
        path.push((*name).to_owned());
        if tokens.get(next + 1) != Some(&"::") {
            break;
        }
        next += 2;
    }
    path
}
