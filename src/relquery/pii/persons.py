"""Names of persons and addresses, by the words in them and around them.

    Mrs Okafor        a title before a capitalised word
    Anna Kowalski     a common given name before one
    Laut Radek Wolny  words that a person follows
    Lindenallee 44    a word for a street, and a number

A name that is neither common nor named so by the words around it is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from relquery.pii.lists import ALSO_WORDS, GIVEN, NO_NAMES, OF_OTHERS, SMALL_WORDS, SURNAMES
from relquery.pii.patterns import DATE, Finding

_UPPER, _ANY = "A-ZÀ-ÖØ-ÞĀ-ſ", "A-Za-zÀ-ÖØ-öø-ÿĀ-ſ"
_WORD = rf"(?:[DO]['’])?[{_UPPER}][{_ANY}]*(?:['’-][{_UPPER}][{_ANY}]*)*"
_PARTICLE = r"(?:von|van|vom|zu|zur|de|du|der|den|di|da|del|la|le|el|al|bin|ben)"
_INITIAL = rf"[{_UPPER}]\."
_RUN = (
    rf"(?<![\w@.])(?:(?:{_INITIAL} ?){{1,3}}{_WORD}|{_WORD})"
    rf"(?:(?: {_PARTICLE}){{0,3}} (?:{_INITIAL}|{_WORD}))*(?![\w@])"
)

_TITLE = (
    r"(?<!\w)(?:Mr|Mrs|Ms|Miss|Mister|Dr|Prof|Professor|Sgt|Sergeant|Officer|Capt|Captain|Lt|Rev|"
    r"Sir|Lady|Herrn?|Frau|Fräulein|Familie|Monsieur|Madame|Mademoiselle|Maître|M|Mme|Mlle|Me)\.?"
    r"(?: (?:Dr|Prof)\.?)?(?: (?:med|phil|jur|rer|nat)\.)* $"
)
_ROLES = (
    r"patient(?:in)?|customer|cliente?|agent|caller|holder|passenger|visitor|driver|guest|employee|"
    r"student|teacher|nurse|guide|manager|director|author|owner|landlord|tenant|colleague|boss|"
    r"friend|boyfriend|girlfriend|partner|husband|wife|mother|father|mom|dad|son|daughter|brother|"
    r"sister|cousin|uncle|aunt|neighbou?r|"
    r"kund(?:e|in)|mandant(?:in)?|mitarbeiter(?:in)?|kolleg(?:e|in)|anrufer(?:in)?|"
    r"inhaber(?:in)?|fahrer(?:in)?|schüler(?:in)?|lehrer(?:in)?|chef(?:in)?|vermieter(?:in)?|"
    r"mieter(?:in)?|freund(?:in)?|leiter(?:in)?|\w+leiter(?:in)?|mann|ehefrau|mutter|vater|sohn|"
    r"tochter|bruder|schwester|cousine|onkel|tante|oma|opa|nachbar[ni]*n?|"
    r"appelante?|titulaire|passager|passagère|visiteu(?:r|se)|conducteur|conductrice|invitée?|"
    r"employée?|élève|professeure?|conseiller|conseillère|directeur|directrice|propriétaire|"
    r"locataire|collègue|amie?|copain|copine|mari|femme|mère|père|fils|fille|frère|sœur|oncle|"
    r"voisine?"
)
_ROLE = rf"(?i:{_ROLES})"
_CUE = (
    r"(?i:(?<!\w)(?:(?:my )?name is|i am|i'm|this is|it'?s|it was|named|called|a certain|"
    r"ask for|regards|sincerely|wishes|best|yours|cheers|thanks(?: so much| a lot| again)?|"
    r"signed(?: by)?|name|"
    r"contact|attention|attn\.?|c/o|on behalf of|dear|name of|(?:him|her|my)self as|"
    r"them(?:selves)?,|present|attendees|es war|sich als|mich als|namen|die beiden,|anwesend|"
    r"teilnehmer|présentée? comme|c'était|les deux,|présents|participants|"
    r"name ist|heiße|ich bin|hier ist|hier spricht|gewissen?|namens|grüßen?|gruß|mfg|vg|lg|liebe|"
    r"lieber|kontakt|händen|z\. ?hd\.|fragen sie nach|"
    r"(?:approved|handled|prepared|reported|requested|reviewed|signed|submitted) by|assigned to|"
    r"zuständig|(?:bearbeitet|freigegeben|gemeldet|genehmigt|geprüft|unterschrieben) von|"
    r"(?:approuv|demand|envoy|prépar|sign|trait|valid|vérifi)ée?s? par|à prévenir|"
    r"m'appelle|je suis|c'est|ici|cordialement|salutations|bientôt|bien à vous|amicalement|cher|"
    r"chère|l'attention de|nom de|demandez|nommée?|"
    rf"(?:{_ROLES})(?: (?:in|at|from|of|à|de|du|aus) \w+,)?))"
    r"(?: ?[:,!.])?\s"
)
_NAMES_FOLLOW = rf"{_CUE}$"
"""What stands right before a person's name."""
_IN_SMALL_LETTERS = (
    rf"(?:{_CUE}|(?i:(?<!\w)(?:hi|hey|hallo|moin|salut|coucou|hier|its|and|with|from|to|tell|ask|"
    r"und|mit|von|an|frag|et|avec|par|à|dis à|chez),? ))(?=([a-zß-ÿ]{3,})(?!\w))"
)
_TITLE_IN_SMALL_LETTERS = (
    r"(?<!\w)(?:mrs?\.?|ms\.?|mme|mlle|(?<!eine )(?<!die )(?<!ihre )(?<!seine )(?:herrn?|frau)) "
    r"([a-zß-ÿ]{4,})(?!\w)"
)
_SIGNED_BY = r"(?i:(?<!\w)(?:thx|ta|danke|merci|bises|bisous|cdlt|viele grüße))[,!]?\s$"
"""What stands before a name at the end of a text."""
_ASKED = (
    r",? (?:(?:can|could|would|will|did|do|have|are) you|(?:kannst|könntest|hast|bist|magst) du|"
    r"(?:können|könnten|haben|sind) sie|tu (?:peux|pourrais|as)|vous (?:pouvez|pourriez|avez)|"
    r"(?:peux|pourrais)-tu|(?:pouvez|pourriez)-vous)(?!\w)"
)
"""What stands after the name of somebody who is asked."""
_DOES = (
    r" (?:(?:has |have )?(?:just )?(?:says?|said|asks|asked|called|phoned|rang|writes|wrote|told|"
    r"promised|signed|thinks)|(?:sagte?|meinte?|schreibt|schrieb|fragte?|rief)|"
    r"hat (?:gerade |eben |schon )?(?:angerufen|gesagt|geschrieben|gefragt)|"
    r"(?:a )?(?:dit|écrit|demandé|appelé)|demande|appelle|vient d'(?:appeler|écrire)|"
    r"(?:was|is) (?:so |very |really )?(?:friendly|helpful|kind|lovely|polite|rude)|"
    r"war (?:so |sehr |wirklich )?(?:freundlich|hilfsbereit|höflich|nett|unfreundlich)|"
    r"(?:était|est|a été) (?:si |très )?(?:aimable|charmante?|gentille?|polie?|serviable)|"
    r"here,)(?!\w)"
)
"""What a person does: enough for one word without an article before it."""
_ARTICLE = (
    r"(?i:(?<!\w)(?:the|an?|this|my|your|his|her|our|their|de[rnms]|die|das|eine?[rnms]?|"
    r"(?:mein|dein|sein|ihr|unser)(?:e[rnms]?)?|les?|la|une?|ce|cette|mon|ma|son|sa|notre|votre)) $"
)
_PERSONS_FOLLOW = (
    r"(?i:(?<!\w)(?:by|from|with|for|and|or|but|says?|said|according to|both|re:|call|phone|"
    r"(?:mail|send|ship|forward|write|addressed)(?: it| this)? to|"
    r"von|mit|für|bei|an|laut|und|oder|sowohl|als auch|sagt|rufen sie|"
    r"par|avec|pour|chez|et|ou|mais|selon|dit|appeler|rappeler|contacter)) $"
    r"|(?i:(?<!\w)(?:from|to|von|an|de|à|signed|a|r|payee|recipient|sender|beneficiary|empfänger|"
    r"absender|kontoinhaber|destinataire|expéditeur|bénéficiaire) ?: )$"
)
"""What often stands before one: enough for two words that nothing else explains."""
_PERSON_BEFORE = (
    r"['’]s (?!\d)|,? (?:has|had|was|is|called|wrote|writes|said|says|asked|asks|told|tells|lives|"
    r"signed|phoned|rang|took|sent|hat|hatte|war|ist|schreibt|schrieb|sagt|sagte|meint|meinte|"
    r"fragt|fragte|rief|wohnt|möchte|a|est|était|écrit|dit|demande|avait|appelle|habite|souhaite)"
    r"(?!\w)|, (?:geb|geboren|born|who|die|der|née?|qui|my|meine?|mon|ma)(?!\w)"
    r"| \((?:born|geb|née?|DOB|she|he|they|sie|er|elle|il)(?!\w)"
    r"| <|,? (?:phone|mobile|tel|tél|telefon|handy)(?!\w)|, \+?\(?\d[\d ()/.-]{7}"
)
"""What often stands after one: likewise."""
_BORN = rf",? \(({DATE})\)"
"""A day behind a name: `Anna Berger (12.03.1985)`."""
_OF_THINGS = r"(?i:(?<!\w)(?:the|an?|this|les?|une?|ces?|cette) $)"
"""Articles that stand before no person's name: `the Calvin Klein jacket`. German has them."""
_SURNAME_FIRST = rf"(?<!\w)[{_UPPER}'-]{{2,}}, ([{_UPPER}-]{{2,}})(?!\w)"
_JOINED = r" (?:and|und|et|als auch|sowie|&) |, "
_NEAR = 40  # characters before a name that are looked at


def find_names(text: str) -> Iterator[Finding]:
    """Names of persons, without their titles, and days of birth right behind them."""
    runs = list(_runs(text))
    named = [_is_name(text, *run) for run in runs]
    for index in range(1, len(runs)):  # what is joined with a name is one
        (_, before), (start, _) = runs[index - 1], runs[index]
        if named[index - 1] != named[index] and re.fullmatch(_JOINED, text[before:start]):
            if all(" " in text[slice(*runs[run])] for run in (index - 1, index)):
                named[index - 1] = named[index] = True
            elif "&" in text[before:start]:  # a firm
                named[index - 1] = named[index] = False
    whole = [text[start:end] for (start, end), is_one in zip(runs, named, strict=True) if is_one]
    parts = {part for name in whole for part in name.split() if len(part) > 2} - ALSO_WORDS
    for (start, end), is_one in zip(runs, named, strict=True):
        if is_one or text[start:end] in parts:
            yield Finding(start, end, "NAME")
            if born := re.compile(_BORN).match(text, end):
                yield Finding(born.start(1), born.end(1), "DATE_OF_BIRTH")
    yield from _in_small_or_capital_letters(text)


def _in_small_or_capital_letters(text: str) -> Iterator[Finding]:
    for small in re.finditer(_IN_SMALL_LETTERS, text):
        if small[1].capitalize() in GIVEN - ALSO_WORDS - SMALL_WORDS:
            yield Finding(small.start(1), small.end(1), "NAME")
    for titled in re.finditer(_TITLE_IN_SMALL_LETTERS, text):
        if titled[1] not in NO_NAMES:
            yield Finding(titled.start(1), titled.end(1), "NAME")
    for turned in re.finditer(_SURNAME_FIRST, text):
        if turned[1].capitalize() in GIVEN:
            yield Finding(turned.start(), turned.end(), "NAME")


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """Where capitalised words stand together that may be a name."""
    for run in re.finditer(_RUN, text):
        words = [(run.start() + word.start(), word[0]) for word in re.finditer(r"\S+", run[0])]
        kept: list[tuple[int, str]] = []
        for start, word in (*words, (0, "")):
            is_none = word.lower() in NO_NAMES and not (kept and re.fullmatch(_INITIAL, word))
            if word and not is_none and not re.fullmatch(_ROLE, word):
                kept.append((start, word))
                continue
            if word and kept and word.islower():  # a particle inside a name
                kept.append((start, word))
                continue
            while kept and kept[-1][1].islower():
                kept.pop()
            if kept:
                yield kept[0][0], kept[-1][0] + len(kept[-1][1])
            kept = []


def _is_name(text: str, start: int, end: int) -> bool:
    words, before = text[start:end].split(), text[max(0, start - _NEAR) : start]
    if re.search(_TITLE, before) or re.match(_INITIAL, words[0]):
        return True
    parts = [part for word in words for part in re.split("['’-]", word)]
    parts = [part.capitalize() if part.isupper() else part for part in parts]
    is_common = len(words) > 1 and parts[0] in GIVEN and parts[-1] in SURNAMES
    is_of_others = not is_common and any(part.lower() in OF_OTHERS for part in parts)
    if is_of_others or re.search(_OF_THINGS, before):
        return False
    after = text[end : end + _NEAR]
    is_signed = re.search(_SIGNED_BY, before) and re.match(r"\W*(?:$|\n)", after)
    if is_signed or re.search(_NAMES_FOLLOW, before):
        return True
    is_given = any(part in GIVEN for part in parts)
    if len(words) == 1:
        return (is_given and words[0] not in ALSO_WORDS) or _is_one_person(before, after)
    is_known = is_given or any(part in SURNAMES for part in parts[1:])
    return is_known or bool(
        re.search(_PERSONS_FOLLOW, before) or re.match(_PERSON_BEFORE, after, re.I)
    )


def _is_one_person(before: str, after: str) -> bool:
    """Whether the words around one word that no list has are about a person."""
    if re.match(_DOES, after) and not re.search(_ARTICLE, before):
        return True
    is_question = re.search(r"(?i:(?<!\w)(?:you|du|sie|tu|vous)(?!\w))[^.?!\n]*, $", before)
    return bool(re.match(_ASKED, after, re.I) or (is_question and re.match(r" ?\?", after)))


# Addresses

_CAPITAL = rf"[{_UPPER}][\w'’.-]{{0,40}}"
_UK_CODE = r"[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}"
_CITY_WORD = rf"[{_UPPER}][\w'’-]{{0,40}}"
_CITY = rf"(?:St\. )?{_CITY_WORD}(?:[ -]{_CITY_WORD}){{0,2}}"
_ENGLISH = (
    rf"(?<![\w.,-])(?:(?:Flat|Apt\.?|Apartment|Unit|Suite|Room) ?#?\w{{1,4}},? )?"
    rf"\d{{1,5}}[a-zA-Z]? (?:{_CAPITAL} ){{1,4}}?(?:Street|St|Avenue|Ave|Road|Rd|Lane|Ln|Drive|Dr|"
    rf"Boulevard|Blvd|Court|Ct|Place|Pl|Square|Sq|Terrace|Way|Close|Crescent|Gardens?|Grove|"
    rf"Hill|Row|Mews|Parkway|Pkwy|Highway|Hwy|Circle|Walk|Broadway|Park|Quay)(?!\w)\.?"
    rf"(?:,? (?:Flat|Apt\.?|Apartment|Unit|Suite) ?#?\w{{1,4}})?"
    rf"(?:,? {_CITY},?(?: [A-Z]{{2}},?| {_CAPITAL})? (?:\d{{5}}(?:-\d{{4}})?|{_UK_CODE})(?!\w)"
    rf"|, {_CITY})?"
)
_GERMAN = (
    rf"(?<!\w)(?:[{_UPPER}][\w-]{{0,40}}(?:straße|strasse|str\.|weg|platz|allee|gasse|ring|damm|"
    rf"ufer|steig|chaussee|markt|graben|kamp|stieg|pfad|zeile|hof)|"
    rf"{_CAPITAL}(?:er|[ -]{_CAPITAL})?[ -](?:Straße|Str\.|Weg|Platz|Allee|Ring|Gasse|Ufer|Damm)|"
    rf"(?:Am|An der|An den|Auf der|Auf dem|Im|In der|In den|Zum|Zur|Unter den|Unterm|Hinter der|"
    rf"Hinterm|Vor dem|Vorm|Bei der|Beim|Über der) {_CAPITAL}(?: {_CAPITAL})?) "
    rf"\d{{1,4}}(?: ?[a-z])?(?!\.?\w)(?:-\d+)?"
    rf"(?:,? (?:D-)?\d{{5}} {_CITY}(?: am {_CAPITAL})?)?"
)
_FRENCH = (
    rf"(?<![\w.,-])\d{{1,4}}(?: ?(?:bis|ter|quater))?,? "
    rf"(?i:rue|avenue|av\.|boulevard|bd|place|pl\.|impasse|allées?|chemin|quai|cours|"
    rf"route|square|passage|esplanade|faubourg|villa|cité)"
    rf"(?: (?:de la|de l['’]|des|du|de|la|le|les|d['’]|l['’]|et|sur))?"
    rf"[ ]?(?:[{_UPPER}][\w'’-]*)(?: (?:de la|des|du|de|et|sur)? ?[{_UPPER}][\w'’-]*){{0,3}}"
    rf"(?:,? (?:F-)?\d{{5}} {_CITY}(?: [Cc]edex)?)?"
)
_BOX = (
    rf"(?<!\w)(?:(?i:p\. ?o\. ?box|po box|postfach|boîte postale)|BP) \d[\d ]*\d"
    rf"(?:,? (?:D-|F-)?\d{{5}} {_CITY}|, {_CITY} (?:[A-Z]{{2}} \d{{5}}|{_UK_CODE}))?"
)
_HAMLET = rf"(?<!\w)(?i:lieu-?dit|hameau) (?:(?:le|la|les|de|du|des) )?{_CITY},? \d{{5}} {_CITY}"


def find_addresses(text: str) -> Iterator[Finding]:
    """Streets with a number, and the code and city behind them."""
    for form in (_ENGLISH, _GERMAN, _FRENCH, _BOX, _HAMLET):
        for match in re.finditer(form, text):
            yield Finding(match.start(), len(match[0].rstrip(" .,")) + match.start(), "ADDRESS")
