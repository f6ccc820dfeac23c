"""Words that the rules for names know: common names, and capitalised words that are no names.

Of our own making, for English, German and French. `benchmarks/redact` holds other names back.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


GIVEN = _words(
    """
    Aaron Abigail Adam Adrian Agnes Aisha Alain Alan Albert Alejandro Alex Alexander Alexandra
    Alexandre Alfred Ali Alice Alicia Aline Alison Amanda Amber Amélie Amy Ana Anaïs Andrea
    Andreas Andrew André Angela Angelika Anita Anja Ann Anna Anne Annette Annika Anthony Antoine
    Antje Anton Arthur Ashley Astrid Audrey Aurélie Axel Barbara Bastian Beate Beatrice Ben
    Benjamin Benoît Bernard Bernd Bernhard Beth Bettina Bianca Birgit Bjorn Brandon Brian Brigitte
    Britta Bruno Camille Carl Carla Carlos Carmen Carol Caroline Catherine Cécile Céline Chantal
    Charles Charlotte Chloé Chloe Chris Christa Christelle Christian Christiane Christina
    Christine Christophe Christopher Claire Clara Claude Claudia Clément Colette Connor Corinne
    Cornelia Craig Cynthia Cédric Damien Daniel Daniela Danielle David Deborah Delphine Denis
    Dennis Diana Diane Didier Dieter Dirk Dominique Donald Donna Doris Dorothy Dylan Edith Edward
    Eileen Elena Elias Elisabeth Elise Elizabeth Elke Ella Ellen Émilie Emily Emma Emmanuel Eric
    Erik Erika Erwin Esther Eugene Eva Evelyn Éric Fabian Fatima Felix Finn Fiona Florian Franck
    François Françoise Frank Franz Frédéric Friedrich Fritz Gabriel Gabriele Gary Gareth Georg
    George Georges Gérard Gerald Gerd Gerhard Gilles Gisela Giulia Gloria Grace Greg Gregory
    Guillaume Günter Günther Hanna Hannah Hans Harald Harry Hassan Heather Heidi Heike Heinrich
    Heinz Helen Helena Helga Hélène Helmut Henri Henry Herbert Hermann Holger Horst Hubert Hugo
    Ian Ibrahim Ida Ingrid Ingo Irene Iris Isabel Isabelle Jack Jacob Jacqueline Jacques Jakob
    James Jamie Jan Jana Jane Janet Janine Jasmin Jason Jean Jeanne Jeff Jennifer Jens Jeremy
    Jérôme Jessica Jill Joachim Joan Joanna Jochen Joe Johan Johann Johanna Johannes John Jonas
    Jonathan Jordan Jörg José Josef Joseph Joshua Juan Judith Julia Julian Julie Julien Jürgen
    Justin Karen Karim Karin Karl Katharina Kathleen Kathrin Katja Keith Kelly Ken Kenneth Kerstin
    Kevin Kim Klaus Konrad Kurt Kyle Lara Lars Laura Laure Laurence Laurent Lea Léa Lena Leo Leon
    Leonie Liam Linda Lisa Louis Louise Luc Luca Lucas Lucie Lucy Ludovic Luisa Lukas Lydia Léo
    Madeleine Manfred Manon Manuel Manuela Marc Marcel Marco Marcus Margaret Margot Maria Marianne
    Marie Marina Mario Marion Marius Mark Marko Markus Martha Martin Martina Martine Mary Mathieu
    Mathilde Matthew Matthias Maurice Max Maximilian Megan Melanie Mélanie Melissa Mia Michael
    Michel Michèle Michelle Miguel Mike Mohamed Mohammed Monika Monique Morgan Moritz Nadia Nadine
    Nancy Natalie Nathalie Nathan Nicholas Nick Nicola Nicolas Nicole Niklas Nina Noah Nora
    Norbert Oliver Olivia Olivier Oscar Oskar Otto Pamela Pascal Patricia Patrick Paul Paula
    Pauline Pedro Peter Petra Philip Philipp Philippe Pierre Rachel Rainer Ralf Ralph Raphaël
    Raymond Rebecca Regina Reinhard Renate René Richard Rita Robert Roger Roland Rolf Romain
    Ronald Rosa Roxane Rudolf Ruth Ryan Sabine Sabrina Sally Samantha Samuel Sandra Sandrine Sara
    Sarah Sascha Scott Sean Sébastien Sebastian Serge Sharon Silke Silvia Simon Simone Sofia Sonia
    Sonja Sophia Sophie Stefan Stefanie Stephan Stéphane Stéphanie Stephanie Stephen Steve Steven
    Susan Susanne Suzanne Svenja Sven Sylvain Sylvie Tanja Tara Thea Theo Theresa Thérèse Thierry
    Thomas Tim Tina Tobias Tom Torsten Tyler Udo Ulrich Ulrike Ursula Ute Uwe Valérie Vanessa Vera
    Véronique Victor Victoria Viktor Vincent Virginie Walter Werner Wilhelm William Wolfgang
    Xavier Yann Yannick Yasmin Yves Yvonne Zoé Zoe
    """
)
"""Common given names."""

SURNAMES = _words(
    """
    Adams Allen Anderson Bailey Baker Bauer Baumann Becker Bell Bennett Berger Bergmann Bernard
    Bertrand Blanc Bonnet Böhm Brandt Braun Brooks Brown Busch Butler Campbell Carter Chevalier
    Clark Clarke Clement Collins Cook Cooper Cox Davies Davis Dubois Dufour Dumont Dupont Dupuis
    Durand Edwards Engel Evans Fabre Fischer Fontaine Foster Fournier Frank Franke Friedrich Fuchs
    Garcia Garnier Gauthier Girard Graf Graham Gray Green Griffiths Günther Haas Hahn Hall
    Hamilton Harris Harrison Hartmann Hayes Heinrich Henry Herrmann Hill Hoffmann Hofmann Horn
    Howard Huber Hughes Jackson Jäger James Jenkins Johnson Johnston Jones Jung Kaiser Keller
    Kelly Kennedy King Klein Koch Köhler König Kraus Krause Krüger Kühn Lambert Lang Lange Laurent
    Lefebvre Lefevre Legrand Lehmann Leroy Lewis Lopez Lorenz Ludwig Maier Marchand Martin
    Martinez Martínez Mason Mayer Meier Mercier Meyer Michel Miller Mitchell Möller Moore Moreau
    Morel Morgan Morin Morris Müller Murphy Murray Neumann Nguyen Nicolas Otto Palmer Parker Patel
    Perrin Peters Petit Pfeiffer Phillips Pohl Price Reed Richard Richards Richardson Richter
    Rivière Robert Roberts Robertson Robin Robinson Rodriguez Rogers Ross Rousseau Roussel Roux
    Roth Russell Sanders Sauer Schäfer Schmid Schmidt Schmitt Schmitz Schneider Scholz Schreiber
    Schröder Schubert Schulte Schulz Schulze Schumacher Schuster Schwarz Scott Seidel Shaw Simon
    Simpson Smith Sommer Stein Stewart Taylor Thomas Thompson Turner Vogel Vogt Vincent Wagner
    Walker Walter Ward Watson Weber Weiß White Williams Wilson Winkler Winter Wolf Wolff Wood
    Wright Young Ziegler Zimmermann
    """
)
"""Common surnames."""

ALSO_WORDS = _words(
    """
    Amber Art Bill Claude Dawn Engel Ernst Faith Florence Frank Grace Guy Hope Jordan Joy June Mai
    Mark Max May Paris Pascal Pat Ray Rich Rob Rose Ruby Sue Victoria Will Wolf
    """
)
"""Given names that are often something else: alone they are no names."""

NO_NAMES = _words(
    """
    a about account account's address after all am an and any as ask at because before both but by
    can card charged charge code contact could customer customers date day dear deliver delivery
    desk did do driver during each every everything flat for friday from good guests had has have
    he hello help her here hi his how however i i'd i'll i'm i've if in is it it's january
    february march april june july august september october november december kind last later
    licence license log mail may maybe meet mobile monday mr mrs ms my name neighbour neighbor
    never new next no not note now number of on once one or order our passport patient phone
    please po reached regards request room saturday seit she ship since so some somebody someone
    speak spoke ssn still sunday tax tell thank thanks that the their then there these they this
    those thursday to today tomorrow tuesday two ticket unfortunately until up update version visa
    visit we wednesday what when where which while who whose why will wire with would write yes
    yesterday you your blocked according warmest best sincerely aber ab alle alles als also am an
    auch auf aus ausweis bei bis bitte bote da dann das dass dein dem den der des deshalb die dies
    diese dieser doch durch ein eine einem einen einer er es firma frau freitag für gestern guten
    gute grüße grüßen hallo hat herr herrn heute hier ich ihr ihre ihrem ihren im in ist ja jetzt
    kann karte kein keine konto kontakt kunde kunden kundin laut liebe lieber mann meine mein
    meinem meiner mich mir mit mitarbeiter mittwoch montag morgen mobil nach nein nicht noch nun
    nur oder ohne paket patient patientin sehr senden sie sind samstag seit selbst so sonntag
    sowohl tag tel telefon treffpunkt über um und uns unser unsere unter viele vielen von vom vor
    war warum was weil wenn wer wie wir wo zu zum zur zwei donnerstag dienstag januar februar märz
    mai juni juli oktober dezember schreiben rufen fragen neue überweisen führerschein
    personalausweis steuernummer steuer rechnung vertrag anmeldung bestellung à ah alors après au
    aucun aujourd'hui aussi autre aux avant avec bonjour bonsoir c'est ça car carte ce ceci cela
    celle celui ces cet cette chaque cher chère client cliente combien comme commande comment
    contact cordialement d'accord dans de débité demain demandez depuis des deux dimanche donc du
    elle elles en encore envoyez est et ils il ici j'ai jamais je jeudi l'adresse la le les leur
    lorsque lundi ma madame mademoiselle mais mardi merci mercredi mes mme mlle mon monsieur ne ni
    non nos notre nous nouvelle numéro on ou où par parce pas passeport permis personne plus
    portable pour pourquoi puis quand que quel quelle qui rendez-vous sa samedi sans ses selon si
    son sont sous sur ta tes toujours tous tout très tu un une vendredi veuillez virez vos votre
    vous voici voilà écrivez échec avril août février janvier juillet juin mars novembre octobre
    septembre décembre me m m. vg lg mfg best yours caller contact dr prof prof. dr. mr. mrs. sir
    lady miss fräulein familie monsieur iban bic usb pdf id dob ein tin cvv
    """
)
"""Words that are no names, also where they are capitalised; in lower case."""

OF_OTHERS = _words(
    """
    ag airlines airport akademie amt apple association avenue bahn bahnhof bank banque black blue
    brothers bundesbank bureau café center central centre château church city club co college
    commerce commission committee company corp corporation council court department deutsche east
    école editions express fifth fire first forest foundation france gare gmbh galaxy general
    golden google grand great green group gruppe hall haus high holding hospital hotel hôtel house
    inc insurance international institut institute island klinik lake las limited lloyd los ltd
    mairie maison market medical microsoft ministry mount museum musée national new north office
    old park parc partner plaza police port post premier press publishing red republic restaurant
    river royal sa saint samsung san sarl school schule service services société solutions south
    sparkasse square st stadt station store street studio systems team technologies telekom tower
    trust unit flat suite support united université university universität union verein
    versicherung verlag volksbank west world york
    """
)
"""Words in the names of organisations, places and products; in lower case."""
