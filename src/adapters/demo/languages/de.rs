//! German.

use crate::adapters::demo::language::{Act, Language, Phrases, Place, When};

pub(super) const GERMAN: Language = Language {
    rules: &[
        (
            Act::Harmful,
            r"\b(?:bomben?|sprengstoff|schadsoftware|geldwäsche|bank ausrauben|umbringen|vergiften)\b",
        ),
        (
            Act::Harmful,
            r"\b(?:ignoriere?|vergiss|missachte) (?:alle |deine |die |bisherigen |vorherigen )*(?:anweisungen|regeln)\b",
        ),
        (
            Act::DeleteAll,
            r"^(?:lösche?|entferne?|leere?)(?: mir)? (?:alle|alles|sämtliche|(?:meine|die) (?:ganze|gesamte|komplette|daten\b|liste$|aufgabenliste$|aufgaben$))",
        ),
        (
            Act::OthersTasks,
            r"^(?:zeige?|liste|lösche?|was).*\b(?:eines anderen|anderer|meines chefs|meiner frau|meines mannes|meiner kollegin|meines kollegen|von anderen)\b.*$",
        ),
        (
            Act::AddIt,
            r"^(?:ja,? )?(?:bitte )?(?:füge? (?:es|das|sie)(?: bitte)?(?: als(?: neue)? aufgabe)? hinzu|als(?: neue)? aufgabe(?: hinzufügen)?)$",
        ),
        (
            Act::Add,
            r"^(?:füge?|nimm|setze?|schreibe?)(?: bitte)?(?: mir)? (?P<x>.+?) (?:zu|auf|in)(?: meiner?| meinen| der| den| die)? (?:aufgaben|to-?dos?|(?:aufgaben|to-?do-?)?liste)(?P<tail>)(?: hinzu| auf)?$",
        ),
        (
            Act::Add,
            r"^(?:füge?|erstelle?|lege?|mach|notiere?|schreibe?)(?: bitte)?(?: mir)?(?: eine?)?(?: neue)? (?:aufgabe|erinnerung|notiz|to-?do)(?: an| hinzu| auf)?(?:,|:)? (?P<x>.+?)(?: hinzu| an)?$",
        ),
        (
            Act::Add,
            r"^erinnere? mich(?: bitte)? (?P<tail>.*?)\s*(?:daran|an),? (?P<x>.+)$",
        ),
        (Act::Add, r"^(?:neue )?aufgabe ?[:\-] ?(?P<x>.+)$"),
        (Act::Add, r"^ich (?:muss|soll|darf nicht vergessen,?) (?P<x>.+)$"),
        (
            Act::ListDone,
            r"^(?:zeige?|liste)(?: mir)?(?: alle| meine| die)* (?:erledigten|fertigen) aufgaben(?: auf| an)?$",
        ),
        (
            Act::List,
            r"^(?:zeige?|liste|nenne?|gib|lies)(?: mir)?(?: bitte)?(?P<f>(?: (?:alle|meine|die|offenen|überfälligen|aktuellen))*) (?:aufgaben|to-?dos?|(?:aufgaben|to-?do-?)?liste)(?P<tail>.*?)(?: auf| an| vor)?$",
        ),
        (
            Act::List,
            r"^(?:was|welche aufgaben) (?:steht|habe ich|ist|sind|muss ich)(?: noch)?(?: auf| zu| alles)?(?P<f>(?: (?:meiner|der|offenen))*)(?: (?:liste|aufgabenliste|to-?do-?liste|aufgaben))?(?P<tail>.*)$",
        ),
        (Act::List, r"^(?:meine |offene )?(?:aufgaben|aufgabenliste)$"),
        (
            Act::Change,
            r"^(?:setze?|mach) (?P<x>.+?) auf (?P<y>(?:hohe|niedrige|normale) priorität)$",
        ),
        (
            Act::Complete,
            r"^(?:markiere?|setze?|hake?)(?: bitte)? (?P<x>.+?)(?: als| auf)? (?:erledigt|fertig|abgeschlossen|ab)$",
        ),
        (Act::Complete, r"^(?:erledige|schließe) (?P<x>.+?)(?: ab)?$"),
        (
            Act::Complete,
            r"^ich habe? (?P<x>.+?) (?:erledigt|fertig|geschafft|gemacht|abgeschlossen)$",
        ),
        (Act::Complete, r"^(?P<x>.+?) ist (?:erledigt|fertig|geschafft|gemacht)$"),
        (
            Act::Change,
            r"^(?:verschiebe?|verlege?)(?: bitte)? (?P<x>.+?) auf (?P<y>.+)$",
        ),
        (
            Act::Change,
            r"^(?:ändere?|benenne?)(?: bitte)? (?P<x>.+?) (?:in|zu) (?P<y>.+?)(?: um| ab)?$",
        ),
        (
            Act::Delete,
            r"^(?:lösche?|entferne?|streiche?)(?: bitte)? (?P<x>.+?)(?: (?:von|aus) (?:meiner|der) liste)?$",
        ),
        (Act::HowAreYou, r"^wie geht(?:'s| es)? ?(?:dir|ihnen)?.*$"),
        (
            Act::Greeting,
            r"^(?:hallo|guten (?:morgen|tag|abend)|moin|servus|grüß gott|na)(?: du| zusammen)?$",
        ),
        (Act::Thanks, r"^(?:danke|vielen dank|super|prima|toll)(?: .*)?$"),
        (Act::Bye, r"^(?:tschüss|auf wiedersehen|bis bald|gute nacht)$"),
        (
            Act::Capabilities,
            r"^(?:hilfe|wer bist du|was (?:kannst|machst) du.*|(?:wobei|womit|wie) kannst du (?:mir )?helfen.*)$",
        ),
        (Act::Joke, r"\bwitz\b"),
        (
            Act::OutOfScope,
            r"\b(?:wetter|nachrichten|rezept|gedicht|übersetze?|hauptstadt|aktienkurs|fußball)\b",
        ),
        (
            Act::OutOfScope,
            r"^(?:wer|wann|wo|warum|wieso|wie|was|welche[rs]?|buche|bestelle|sende|schicke?|spiele?|berechne|erkläre?|schreibe?|rufe?|kaufe? mir)\b",
        ),
    ],
    lead: r"(?:hallo|hi|hey|guten tag)(?:,|!|\.) |(?:bitte|jetzt|ok|okay|auch|dann|und|zuerst|danach|ja|so)(?:,|!)? |(?:kannst|könntest|würdest) du (?:bitte )?(?:mir )?",
    trail: r",? (?:bitte|danke|für mich)|[.!?… ]+",
    then: r"(?i)[,;.]?\s+(?:und )?(?:dann|danach|anschließend)\s+|;\s*|[.!?]\s+",
    and: r",?\s+und\s+|,\s+",
    pointer: r"(?:das|dies|dieses|diese|es|sie|jenes|die andere|das andere|das da)(?: da| hier| aufgabe)?",
    places: &[
        (
            r"(?:die |den |das |meine )?erste[ns]?(?: aufgabe| punkt| eintrag)?|(?:aufgabe|nummer) (?:1|eins)",
            Place::Nth(1),
        ),
        (
            r"(?:die |den |das |meine )?zweite[ns]?(?: aufgabe| punkt| eintrag)?|(?:aufgabe|nummer) (?:2|zwei)",
            Place::Nth(2),
        ),
        (
            r"(?:die |den |das |meine )?dritte[ns]?(?: aufgabe| punkt| eintrag)?|(?:aufgabe|nummer) (?:3|drei)",
            Place::Nth(3),
        ),
        (
            r"(?:die |den |das |meine )?letzte[ns]?(?: aufgabe| punkt| eintrag)?",
            Place::Last,
        ),
    ],
    day_lead: "am|bis|zum|für|fällig|nächsten|nächste|kommenden|diesen",
    days: &[
        ("übermorgen", When::Days(2)),
        ("morgen(?: früh| abend)?", When::Days(1)),
        ("heute(?: abend)?", When::Days(0)),
        ("montag", When::Weekday(0)),
        ("dienstag", When::Weekday(1)),
        ("mittwoch", When::Weekday(2)),
        ("donnerstag", When::Weekday(3)),
        ("freitag", When::Weekday(4)),
        ("samstag|sonnabend", When::Weekday(5)),
        ("sonntag", When::Weekday(6)),
        ("nächste woche", When::NextWeek),
    ],
    in_days: r"in (\d{1,3}|einem|einer|zwei|drei|vier|fünf|sechs|sieben) (tage?n?|wochen?)",
    high: r"(?:mit )?hohe[rn]? priorität|dringend",
    low: r"(?:mit )?niedrige[rn]? priorität",
    normal: r"(?:mit )?normale[rn]? priorität",
    overdue: "überfälligen?",
    this_week: "diese woche",
    stop: &[
        "der", "die", "das", "den", "dem", "ein", "eine", "einen", "mein", "meine", "meinen", "aufgabe", "aufgaben",
        "mit", "von", "zu", "zum", "zur", "für", "über", "und", "bitte", "liste",
    ],
    weak: &[
        "kaufen",
        "einkaufen",
        "anrufen",
        "schreiben",
        "machen",
        "holen",
        "erledigen",
        "lesen",
    ],
    phrases: Phrases {
        greeting: "Hallo! Ich kümmere mich um deine Aufgabenliste. Was möchtest du tun?",
        how_are_you: "Mir geht es gut, danke! Was kann ich für deine Aufgabenliste tun?",
        thanks: "Gern geschehen!",
        bye: "Auf Wiedersehen! Deine Aufgaben bleiben hier.",
        capabilities: "Ich kann Aufgaben hinzufügen (auch mit Termin oder Priorität), zeigen, ändern, als erledigt markieren und einzeln löschen.",
        joke: "Warum war die Aufgabenliste müde? Sie hatte zu viel vor. Machen wir mit deiner weiter?",
        added: "„${task}“ ist hinzugefügt${due}.",
        completed: "„${task}“ ist als erledigt markiert.",
        deleted: "„${task}“ ist gelöscht.",
        changed: "„${task}“ ist geändert${due}.",
        due: ", fällig am ${day}",
        list: "Deine Aufgaben:",
        empty: "Hier sind keine Aufgaben.",
        more: "Es gibt noch mehr Aufgaben als hier gezeigt.",
        not_found: "Ich habe keine Aufgabe gefunden, die zu „${task}“ passt, und nichts geändert.",
        failed: "Das hat nicht geklappt: ${reason}.",
        reason_refused: "die Aufgabenliste hat es abgelehnt",
        reason_no_leave: "es wurde nicht erlaubt",
        reason_down: "die Aufgabenliste war nicht erreichbar, oder es ist ungewiss, ob der Schritt ankam",
        which: "Mehrere Aufgaben passen. Welche meinst du: ${choices}?",
        or: "oder",
        unclear: "Soll ich „${thing}“ als neue Aufgabe hinzufügen, eine vorhandene suchen oder ändern, oder meinst du etwas anderes?",
        unclear_pointer: "Welche Aufgabe meinst du? Nenne mir bitte ihren Namen, oder lass dir die Liste zeigen.",
        out_of_scope: "Tut mir leid, ich kann nur bei deiner Aufgabenliste helfen: hinzufügen, zeigen, ändern, abhaken und löschen.",
        harmful: "Tut mir leid, dabei kann ich nicht helfen. Ich helfe nur bei deiner Aufgabenliste.",
        delete_all: "Tut mir leid, alles auf einmal lösche ich nicht. Ich lösche Aufgaben einzeln, jede bei ihrem Namen; soll ich dir die Liste zeigen?",
        others: "Tut mir leid, ich kann nur mit deiner eigenen Aufgabenliste arbeiten.",
        unavailable: "Tut mir leid, das geht gerade nicht, weil mir die Funktion dafür fehlt.",
    },
};
