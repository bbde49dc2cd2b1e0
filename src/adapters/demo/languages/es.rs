//! Spanish.

use crate::adapters::demo::language::{Act, Language, Phrases, Place, When};

pub(super) const SPANISH: Language = Language {
    rules: &[
        (
            Act::Harmful,
            r"\b(?:bombas?|explosivos?|malware|robar un banco|envenenar|matar a)\b",
        ),
        (
            Act::Harmful,
            r"\b(?:ignora|olvida) (?:todas |tus |las |mis |anteriores )*(?:instrucciones|reglas)\b",
        ),
        (
            Act::DeleteAll,
            r"^(?:borra|elimina|vacía|quita)(?:me)? (?:todo\b|todas|todos|(?:mi|la) (?:lista$|lista entera|cuenta)|(?:mis|los) datos)",
        ),
        (
            Act::OthersTasks,
            r"^(?:muestra|muéstrame|enséñame|lista|borra).*\b(?:de mi jefe|de mi mujer|de mi marido|de otro usuario|de otra persona|de otros)\b.*$",
        ),
        (
            Act::AddIt,
            r"^(?:sí,? )?(?:añádel[oa]s?|agrégal[oa]s?)(?: como(?: una)?(?: nueva)? tarea)?$",
        ),
        (
            Act::Add,
            r"^(?:añade|agrega|pon|apunta) (?P<x>.+?) (?:a|en) (?:mi|la) lista(?: de tareas)?(?P<tail>.*)$",
        ),
        (
            Act::Add,
            r"^(?:añade|agrega|crea|pon|apunta|anota)(?:me)?(?: una)?(?: nueva)? (?:tarea|nota|recordatorio)(?: nueva)?(?: para| de| que diga)?:? (?P<x>.+)$",
        ),
        (Act::Add, r"^recuérdame(?: que)? (?P<x>.+)$"),
        (Act::Add, r"^(?:nueva )?tarea ?: ?(?P<x>.+)$"),
        (Act::Add, r"^(?:tengo que|debo|necesito) (?P<x>.+)$"),
        (
            Act::ListDone,
            r"^(?:muestra|muéstrame|enséñame|lista)(?: todas)?(?: mis| las)? tareas (?:completadas|hechas|terminadas)$",
        ),
        (
            Act::List,
            r"^(?:muestra|muéstrame|enséñame|lista|dame|dime|ver)(?P<f>(?: (?:todas|mis|mi|las|la))*) (?:tareas|lista(?: de tareas)?)(?P<tail>.*)$",
        ),
        (
            Act::List,
            r"^(?:qué|cuáles|que) (?:tareas )?(?:son |hay en |tengo |tengo que hacer)(?P<f>(?: ?(?:mis|mi|las|la|en))*)(?: ?(?:tareas|lista(?: de tareas)?|pendientes?))?(?P<tail>.*)$",
        ),
        (Act::List, r"^mis tareas$"),
        (
            Act::Complete,
            r"^(?:marca|pon) (?P<x>.+?) como (?:hech[oa]s?|completad[oa]s?|terminad[oa]s?|list[oa])$",
        ),
        (Act::Complete, r"^(?:completa|termina) (?P<x>.+)$"),
        (
            Act::Complete,
            r"^(?:ya )?(?:he terminado|terminé|he hecho|hice|ya hice)(?: de)? (?P<x>.+)$",
        ),
        (
            Act::Change,
            r"^(?:mueve|pospón|aplaza|cambia) (?P<x>.+?) (?:a|para|al|por) (?P<y>.+)$",
        ),
        (
            Act::Delete,
            r"^(?:borra|elimina|quita) (?P<x>.+?)(?: de (?:mi|la) lista)?$",
        ),
        (Act::HowAreYou, r"^¿?(?:cómo estás|qué tal|cómo te va).*$"),
        (
            Act::Greeting,
            r"^¡?(?:hola|buenos días|buenas tardes|buenas noches|buenas)$",
        ),
        (Act::Thanks, r"^¡?(?:gracias|muchas gracias|perfecto|genial|vale)$"),
        (Act::Bye, r"^¡?(?:adiós|hasta luego|hasta pronto)$"),
        (
            Act::Capabilities,
            r"^¿?(?:ayuda|quién eres|qué (?:puedes|sabes) hacer.*|(?:en qué|cómo) (?:me )?puedes ayudar(?:me)?.*)$",
        ),
        (Act::Joke, r"\bchiste\b"),
        (Act::Add, r"^(?:añade|agrega|apunta|anota) (?P<x>.+)$"),
        (
            Act::OutOfScope,
            r"\b(?:tiempo hace|noticias|receta|poema|traduce|capital de|clima)\b",
        ),
        (
            Act::OutOfScope,
            r"^¿?(?:quién|cuándo|dónde|por qué|cómo|qué|cuál|cuánto|reserva|envía|manda|llama|calcula|explica|escribe|compra|pon música|pide)\b",
        ),
    ],
    lead: r"¡?hola(?:,|!|\.) |¿|¡|(?:por favor|ahora|vale|también|luego|después|y|primero|sí)(?:,|!)? |(?:puedes|podrías) ",
    trail: r",? (?:por favor|gracias)|[.!?¡¿… ]+",
    then: r"(?i)[,;.]?\s+(?:y )?(?:luego|después)\s+|;\s*|[.!?]\s+",
    and: r",?\s+[ye]\s+|,\s+",
    pointer: r"(?:eso|esa|ese|esto|esta|este|lo|la|ello|la otra|el otro)(?: tarea)?",
    places: &[
        (
            r"(?:la |el |mi )?primer[ao]?(?: tarea)?|(?:la )?tarea (?:número )?(?:1|uno)",
            Place::Nth(1),
        ),
        (
            r"(?:la |el |mi )?segund[ao](?: tarea)?|(?:la )?tarea (?:número )?(?:2|dos)",
            Place::Nth(2),
        ),
        (
            r"(?:la |el |mi )?tercer[ao]?(?: tarea)?|(?:la )?tarea (?:número )?(?:3|tres)",
            Place::Nth(3),
        ),
        (r"(?:la |el |mi )?últim[ao](?: tarea)?", Place::Last),
    ],
    day_lead: "el|para|para el|este|próximo|antes del|hasta el|al",
    days: &[
        ("pasado mañana", When::Days(2)),
        ("mañana(?: por la (?:mañana|tarde|noche))?", When::Days(1)),
        ("hoy|esta noche|esta tarde", When::Days(0)),
        ("lunes", When::Weekday(0)),
        ("martes", When::Weekday(1)),
        ("miércoles", When::Weekday(2)),
        ("jueves", When::Weekday(3)),
        ("viernes", When::Weekday(4)),
        ("sábado", When::Weekday(5)),
        ("domingo", When::Weekday(6)),
        ("(?:la )?(?:próxima semana|semana que viene)", When::NextWeek),
    ],
    in_days: r"en (\d{1,3}|un|una|dos|tres|cuatro|cinco|seis|siete) (días?|semanas?)",
    high: r"(?:con )?prioridad alta|alta prioridad|urgente",
    low: r"(?:con )?prioridad baja|baja prioridad",
    normal: r"(?:con )?prioridad normal",
    overdue: "atrasadas?|vencidas?",
    this_week: "esta semana",
    stop: &[
        "el", "la", "los", "las", "un", "una", "mi", "mis", "tarea", "tareas", "de", "del", "a", "al", "con", "para",
        "por", "y", "sobre", "lista",
    ],
    weak: &["comprar", "compra", "hacer", "llamar", "escribir", "ir", "leer"],
    phrases: Phrases {
        greeting: "¡Hola! Me ocupo de tu lista de tareas. ¿Qué quieres hacer?",
        how_are_you: "¡Muy bien, gracias! ¿Qué puedo hacer por tu lista de tareas?",
        thanks: "¡De nada!",
        bye: "¡Hasta pronto! Tus tareas se quedan aquí.",
        capabilities: "Puedo añadir tareas (también con fecha o prioridad), mostrarlas, cambiarlas, marcarlas como hechas y borrarlas de una en una.",
        joke: "¿Por qué estaba cansada la lista de tareas? Porque tenía mucho que hacer. ¿Seguimos con la tuya?",
        added: "He añadido «${task}»${due}.",
        completed: "He marcado «${task}» como hecha.",
        deleted: "He borrado «${task}».",
        changed: "He cambiado «${task}»${due}.",
        due: ", para el ${day}",
        list: "Tus tareas:",
        empty: "Aquí no hay tareas.",
        more: "Hay más tareas de las que se ven.",
        not_found: "No he encontrado ninguna tarea que corresponda a «${task}» y no he cambiado nada.",
        failed: "No ha funcionado: ${reason}.",
        reason_refused: "la lista de tareas lo ha rechazado",
        reason_down: "no se pudo llegar a la lista de tareas, o no se sabe si el paso llegó",
        which: "Hay varias tareas que encajan. ¿Cuál quieres decir: ${choices}?",
        or: "o",
        unclear: "¿Añado «${thing}» como tarea nueva, busco o cambio una que ya existe, o querías otra cosa?",
        unclear_pointer: "¿Qué tarea quieres decir? Dime su nombre, o pídeme que te muestre la lista.",
        out_of_scope: "Lo siento, solo puedo ayudarte con tu lista de tareas: añadir, mostrar, cambiar, completar y borrar.",
        harmful: "Lo siento, no puedo ayudarte con eso. Solo ayudo con tu lista de tareas.",
        delete_all: "Lo siento, no borro todo a la vez. Borro las tareas de una en una, cada una por su nombre; ¿te muestro la lista?",
        others: "Lo siento, solo puedo trabajar con tu propia lista de tareas.",
        unavailable: "Lo siento, ahora no puedo hacerlo, porque me falta la función para ello.",
    },
};
