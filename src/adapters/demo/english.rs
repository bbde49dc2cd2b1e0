//! The tables of English.

use std::sync::LazyLock;

use super::language::{Act, Compiled, Language, Phrases, Place, When, compile};

static ENGLISH: Language = Language {
    rules: &[
        (
            Act::Harmful,
            r"\b(?:bombs?|explosives?|ransomware|malware|phishing|meth|counterfeit|rob(?:bing)? (?:a|the) bank|hack(?:ing)? (?:into|my)|launder|poison (?:my|someone|him|her)|(?:kill|hurt|stalk|blackmail) (?:my|him|her|someone|myself))\b",
        ),
        (
            Act::Harmful,
            r"\b(?:ignore|forget|disregard|override) (?:all |any |your |the |my |previous |prior |above )*(?:instructions|rules|guidelines|prompt)\b",
        ),
        (
            Act::Harmful,
            r"\b(?:system prompt|developer mode|jailbreak|pretend (?:to be|you are|you're)|act as (?:an? )?(?:admin|root|unrestricted))\b",
        ),
        (
            Act::DeleteAll,
            r"^(?:delete|remove|erase|wipe|clear|purge|empty|drop|destroy|nuke)(?: out)? (?:all|everything|every|(?:my|the) (?:entire|whole|complete|account|data(?:base)?|list$|to-?do list$|task list$|tasks$))",
        ),
        (
            Act::OthersTasks,
            r"^(?:show|list|delete|remove|complete|add|change|see|read|give|tell|what).*\b(?:(?:another|other|every) (?:user|person|people)(?:'s|s'?)?|every(?:one|body)'s|(?:my )?(?:boss|wife|husband|colleague|neighbou?r|friend|coworker|brother|sister)'s) .*(?:tasks?|lists?|to-?dos?|account)\b",
        ),
        (
            Act::Note,
            r"^add (?:an? |the )?notes? to (?P<x>.+?)(?::| that says| saying) (?P<y>.+)$",
        ),
        (
            Act::AddIt,
            r"^(?:yes,? )?(?:please )?(?:add|create|note|save)(?: it| that| them| those| this)?(?: as)?(?: an?)?(?: new)?(?: tasks?)?(?: to (?:my|the) (?:tasks?|list|to-?do list))?(?:,? please)?$",
        ),
        (
            Act::AddMany,
            r"^(?:add|create|note|make)(?: me)?(?: these| the following| two| three| four| five| several| some| \d+)*(?: new)? (?:tasks|to-?dos|items|reminders)(?::| to| for| called)? (?P<x>.+)$",
        ),
        (
            Act::Add,
            r#"^(?:add|create|make|put|note|write|set|set up|schedule|new)(?: down)?(?: me)?(?: an?| the| another)?(?: new)?(?: (?P<p>high|low|normal)[ -]priority)? (?:task|to-?do|item|reminder|note)(?: for me)?(?P<tail>(?: for| on| by)? (?:today|tomorrow|\w+day))?(?: to|:| -| called| named| that says| saying| for)?:? (?P<x>.+)$"#,
        ),
        (
            Act::Add,
            r"^(?:add|put|note|write) (?P<x>.+?) (?:to|on|onto|in|into|as) (?:my |the |a )?(?:task |to-?do |todo |shopping )?(?:list|tasks?|to-?dos?)(?P<tail>(?: .*)?)$",
        ),
        (
            Act::Add,
            r"^(?:remind me|don'?t let me forget|don'?t forget|remember|i (?:mustn't|must not) forget|make sure i remember)(?: to| about| that i (?:need|have) to)? (?P<x>.+)$",
        ),
        (
            Act::Add,
            r"^i(?:'ve| have)? (?:need to|have to|must|should|got to|gotta|ought to) (?P<x>.+)$",
        ),
        (Act::Add, r"^(?:new task|task|to-?do|reminder) ?[:\-] ?(?P<x>.+)$"),
        (
            Act::ListDone,
            r"^(?:show|list|display|give|see|view|which|what)(?: me)?(?: all)?(?: my| the| of my| are my)? ?(?:done|completed|finished) (?:tasks|to-?dos|items)$",
        ),
        (
            Act::ListDone,
            r"^(?:what|which tasks) (?:did i|have i)(?: already)? (?:finish|finished|completed?|done|do)(?: so far| already)?$",
        ),
        (
            Act::List,
            r"^(?:show|list|display|give|tell|see|view|get|read|check|pull up)(?: me)?(?: what(?:'s| is) on)?(?P<f>(?: (?:all|of|my|the|open|pending|current|remaining|overdue|outstanding|today's|tomorrow's|this week's|high[- ]priority|urgent))*) (?:tasks?|to-?dos?|(?:task |to-?do )?list|items|reminders)(?P<tail>(?: .*)?)$",
        ),
        (
            Act::List,
            r"^(?:what|which)(?:'?s| is| are| do i have| have i got| tasks)*(?: still| left)?(?: on| in)?(?P<f>(?: (?:my|the|all|open|pending|overdue|today's|tomorrow's|this week's))*) ?(?:tasks?|to-?dos?|(?:task |to-?do )?list|agenda|plate|to do)(?P<tail>(?: .*)?)$",
        ),
        (
            Act::List,
            r"^(?:what|which tasks?) (?:do|should|must|else do|still) ?i?(?: still)? (?:have|need)?(?: left)?(?: to)? ?do(?P<tail>(?: .*)?)$",
        ),
        (
            Act::List,
            r"^(?:what|which tasks|which ones|anything|what tasks)(?:'s| is| are)?(?: still)? (?:due|overdue|pending|open|left)(?P<tail>(?: .*)?)$",
        ),
        (
            Act::List,
            r"^(?:do i have|are there|is there|have i got) (?:any|anything|something)(?P<tail>(?: .*)?)$",
        ),
        (Act::List, r"^how many (?:tasks|things)(?P<tail>(?: .*)?)$"),
        (
            Act::List,
            r"^(?:(?:list|show|display)(?: me)?(?: (?:all|everything))?|what'?s (?:up )?next)$",
        ),
        (
            Act::List,
            r"^(?:all )?(?:my )?(?:open )?(?:tasks|to-?do list|task list)$",
        ),
        (
            Act::Change,
            r"^(?:make|set|mark) (?P<x>.+?)(?: as| to)?(?: an?)? (?P<y>(?:high|low|normal|urgent|top)(?:[ -]priority)?)$",
        ),
        (
            Act::Change,
            r"^(?:set|change|make|raise|lower)(?: the)? (?:priority|importance) (?:of|for) (?P<x>.+?) (?:to )?(?P<y>high|low|normal)$",
        ),
        (
            Act::Complete,
            r"^(?:mark|set|check|tick|cross)(?: off)? (?P<x>.+?)(?: task)? (?:as |to )?(?:done|complete|completed|finished|off)$",
        ),
        (
            Act::Complete,
            r"^(?:complete|finish|close|check off|tick off|cross off|cross out) (?P<x>.+?)(?: (?:from|on|off) (?:my|the) (?:list|tasks))?$",
        ),
        (
            Act::Complete,
            r"^i(?:'ve| have|'m| am)?(?: just| already)? (?:finished|completed|done with|done|did)(?: with)? (?P<x>.+)$",
        ),
        (Act::Complete, r"^(?:done|finished) with (?P<x>.+)$"),
        (
            Act::Complete,
            r"^(?P<x>.+?) (?:is|are) (?:done|finished|complete|completed)(?: now)?$",
        ),
        (
            Act::Change,
            r"^(?:move|postpone|reschedule|push|shift|delay|defer)(?: the)?(?: (?:due date|deadline|date) (?:of|for))? (?P<x>.+?) (?:to|until|till|for|by) (?P<y>.+)$",
        ),
        (
            Act::Change,
            r"^(?:set|change)(?: the)? (?:due date|deadline|date) (?:of|for) (?P<x>.+?) to (?P<y>.+)$",
        ),
        (
            Act::Change,
            r"^(?:rename|change|reword|update|edit) (?P<x>.+?) (?:to|into) (?P<y>.+)$",
        ),
        (
            Act::Delete,
            r"^(?:delete|remove|erase|drop|cancel|get rid of|throw out|discard|take) (?P<x>.+?)(?: (?:from|off) (?:my|the) (?:list|tasks|to-?do list|task list))?$",
        ),
        (
            Act::HowAreYou,
            r"^(?:how are you|how's it going|how is it going|how do you do|what's up|how are things)\b.*$",
        ),
        (
            Act::Greeting,
            r"^(?:hi|hello|hey|good (?:morning|afternoon|evening|day)|greetings|howdy|yo)(?: there| again| everyone| friend)?$",
        ),
        (
            Act::Thanks,
            r"^(?:thanks|thank you|thx|cheers|great|perfect|awesome|nice|well done|good job|ok(?:ay)?|cool)(?:[,!.]? .*)?$",
        ),
        (Act::Bye, r"^(?:bye|goodbye|see you|good night|see ya|later)(?: .*)?$"),
        (
            Act::Capabilities,
            r"^(?:help|help me|who are you|what are you|what's your name)$",
        ),
        (
            Act::Capabilities,
            r"^(?:what|how) (?:can|do|could) you (?:do|help|offer)\b.*$",
        ),
        (
            Act::Capabilities,
            r"^(?:what are you able to|what can i (?:ask|do with)|how does this work|what are your (?:capabilities|features)).*$",
        ),
        (Act::Joke, r"\bjokes?\b|^make me laugh$"),
        (Act::Add, r"^(?:add|create|note down|jot down) (?P<x>.+)$"),
        (
            Act::OutOfScope,
            r"\b(?:weather|forecast|news|stocks?|recipe|translate|poem|essay|story|haiku|song|football|score|president|capital of|exchange rate|bitcoin|horoscope)\b",
        ),
        (
            Act::OutOfScope,
            r"^(?:what|who|whose|whom|when|where|why|how|which|is|are|am|does|did|can|could|will|would|should)\b",
        ),
        (
            Act::OutOfScope,
            r"^(?:write|book|order|send|play|calculate|compute|solve|explain|summari[sz]e|draw|generate|search|google|find out|look up|tell|call|text|email|buy me|open|run|execute|turn|convert|recommend|teach|sing|transfer|pay|format|reboot|restart|install)\b",
        ),
    ],
    lead: r"(?:hi|hello|hey)(?: there)?(?:,|!|\.) |(?:please|pls|kindly|now|ok|okay|also|then|and|first|next|finally|great|yes|so|oh|actually)(?:,|!)? |(?:can|could|would|will) you (?:please )?(?:also )?|(?:can|could|may) i (?:please )?(?:see|get) (?:a list of )?(?:my )?|i(?:'d| would) like you to |i want you to |go ahead and |just |let's |i(?:'d| would) like to (?:please )?(?:also )?|i want to (?:also )?",
    trail: r",? (?:please|pls|thanks|thank you|thx|for me|for now|right now|real quick|instead|too|as well)|[.!?… ]+",
    then: r"(?i)[,;.]?\s+(?:and )?(?:then|after that|afterwards|next)[, ]+|;\s*|[.!?]\s+",
    and: r",?\s+and\s+|,\s+",
    pointer: r"(?:the )?(?:that|this|it|them|those|these|other|same|all|everything)(?: one| ones| task| tasks| thing)?|yes|no|undo|again",
    places: &[
        (
            r"(?:the |my )?(?:very )?(?:first|1st|top)(?: one| task| item| entry)?|(?:task |number |no\.? ?|#|item )(?:1|one)",
            Place::Nth(1),
        ),
        (
            r"(?:the |my )?(?:second|2nd)(?: one| task| item| entry)?|(?:task |number |no\.? ?|#|item )(?:2|two)",
            Place::Nth(2),
        ),
        (
            r"(?:the |my )?(?:third|3rd)(?: one| task| item| entry)?|(?:task |number |no\.? ?|#|item )(?:3|three)",
            Place::Nth(3),
        ),
        (
            r"(?:the |my )?(?:fourth|4th)(?: one| task| item| entry)?|(?:task |number |no\.? ?|#|item )(?:4|four)",
            Place::Nth(4),
        ),
        (
            r"(?:the |my )?(?:fifth|5th)(?: one| task| item| entry)?|(?:task |number |no\.? ?|#|item )(?:5|five)",
            Place::Nth(5),
        ),
        (r"(?:the |my )?(?:very )?last(?: one| task| item| entry)?", Place::Last),
    ],
    day_lead: "by|on|for|until|till|due|before|next|this|coming|the",
    days: &[
        ("day after tomorrow", When::Days(2)),
        ("tomorrow(?: morning| evening| afternoon| night)?", When::Days(1)),
        ("today|tonight|this evening|this afternoon", When::Days(0)),
        ("monday", When::Weekday(0)),
        ("tuesday", When::Weekday(1)),
        ("wednesday", When::Weekday(2)),
        ("thursday", When::Weekday(3)),
        ("friday", When::Weekday(4)),
        ("saturday", When::Weekday(5)),
        ("sunday", When::Weekday(6)),
        ("next week", When::NextWeek),
    ],
    in_days: r"in (\d{1,3}|a|one|two|three|four|five|six|seven) (days?|weeks?)",
    high: r"(?:with |at |of )?(?:high|top)[ -]priority|urgent(?:ly)?|high",
    low: r"(?:with |at |of )?low[ -]priority|low",
    normal: r"(?:with |at |of )?normal[ -]priority|normal",
    overdue: "overdue|late",
    this_week: "this week(?:'s)?",
    stop: &[
        "the", "a", "an", "my", "our", "to", "of", "for", "task", "tasks", "todo", "one", "ones", "item", "about",
        "with", "from", "on", "in", "at", "and", "that", "this", "please", "list", "reminder", "called", "named",
        "says", "off",
    ],
    weak: &[
        "buy", "get", "shopping", "shop", "call", "write", "do", "make", "go", "finish", "send", "take", "pick", "up",
        "read", "book", "pay",
    ],
    phrases: Phrases {
        greeting: "Hello! I look after your task list. What would you like to do?",
        how_are_you: "I'm doing well, thank you! What can I do for your task list?",
        thanks: "You're welcome!",
        bye: "Goodbye! Your tasks will be here when you come back.",
        capabilities: "I can add tasks (with a due date or a priority), show them, change them, mark them as done, and delete them one at a time. Just tell me what you need.",
        joke: "Why did the to-do list go to therapy? It had too many unresolved items. Shall we get back to yours?",
        added: "Added “${task}”${due}.",
        completed: "Marked “${task}” as done.",
        deleted: "Deleted “${task}”.",
        changed: "Updated “${task}”${due}.",
        due: ", due ${day}",
        list: "Your tasks:",
        empty: "There are no tasks here.",
        more: "There are more tasks than shown.",
        not_found: "I found no task that fits “${task}”, so I changed nothing.",
        failed: "That didn't work: ${reason}.",
        reason_refused: "the task list refused it",
        reason_not_approved: "it was not approved",
        reason_down: "the task list couldn't be reached, or it isn't known whether the step arrived",
        which: "Several tasks fit. Which one do you mean: ${choices}?",
        or: "or",
        unclear: "Shall I add “${thing}” as a new task, find or change an existing one, or did you mean something else?",
        unclear_pointer: "Which task do you mean? Please tell me its name, or ask me to show your list.",
        out_of_scope: "I'm sorry, I can only help with your task list: adding, showing, changing, completing and deleting tasks.",
        harmful: "I'm sorry, I can't help with that. I can only help with your task list.",
        delete_all: "I'm sorry, I don't delete everything at once. I delete tasks one at a time, each by its name; shall I show you the list first?",
        others: "I'm sorry, I can only work with your own task list.",
        unavailable: "I'm sorry, I can't do that right now, because the function for it isn't available to me.",
    },
};

/// The only language of the demo model.
pub(super) fn english() -> &'static Compiled {
    static COMPILED: LazyLock<Compiled> = LazyLock::new(|| compile(&ENGLISH));
    &COMPILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles_and_has_the_groups_its_act_reads() {
        for (act, rule) in &english().rules {
            let has = |name: &str| rule.capture_names().flatten().any(|group| group == name);
            let x = matches!(
                act,
                Act::Add | Act::AddMany | Act::Complete | Act::Delete | Act::Change | Act::Note
            );
            assert_eq!(has("x"), x, "{act:?} {rule}");
            assert_eq!(has("y"), matches!(act, Act::Change | Act::Note), "{act:?} {rule}");
        }
    }
}
