"""Words that the rules for names know: common names, and capitalised words that are no names.

Of our own making, for English, German and French. `benchmarks/redact` holds other names back.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


GIVEN = _words(
    """
    Aarav Aaron Abdul Abdullah Abel Abena Abigail Abraham Achieng Achim Ada Adaeze Adalbert Adam
    Adama Addison Adel Adele Adèle Adelheid Aditi Adnan Adolf Adrian Adriana Adrien Adrienne
    Agata Agathe Agnes Agnès Agnieszka Ahmad Ahmed Aidan Aiko Aimee Aino Aisha Akiko Akira
    Akosua Alain Alan Alana Alanna Alastair Albert Albrecht Alec Aled Alejandro Aleksander
    Aleksandra Aleksei Alena Alessandra Alessandro Alessia Alessio Alex Alexander Alexandra
    Alexandre Alexis Alfonso Alfred Alfredo Ali Alice Alicia Alina Aline Alison Alistair Allison
    Alois Alphonse Alva Alvin Alyssa Ama Amadou Amal Amalia Amanda Amara Amber Amélia Amelia
    Amélie Amina Aminata Amir Amira Amit Amos Amy Ana Anahit Anaïs Ananya Anastasia Anatole
    Anders Andi André Andrea Andreas Andrei Andrej Andrés Andres Andrew Andrzej Andy Ángel
    Angela Angelika Angelina Angelo Angus Ania Anil Anisa Anita Anja Anke Ann Anna Anna-Lena
    Annabel Anne Annelie Anneliese Annemarie Annette Annick Annie Annika Anouk Ansgar Antal
    Anthony Antje Antoine Anton Antonella Antonia Antonin António Antonio Anusha Anya Aoife
    Ariadne Ariane Arianna Ariel Arif Aristide Arjun Arlette Armand Armando Armin Arnaud Arnd
    Arne Arno Arnold Aron Artem Arthur Arturo Arun Arvid Arwa Asha Ashley Ashraf Asif Asma
    Astrid Athena Aubrey Audrey August Augustin Augustine Augusto Aurelia Aurélie Aurélien Ava
    Avery Avi Awa Axel Ayesha Aylin Ayşe Ayse Aziz Azra Babette Baptiste Barbara Barbora Barnaby
    Barry Bart Basile Bastian Bastien Bea Beate Beatrice Béatrice Bella Ben Benedict Benedikt
    Benita Benjamin Bennett Benny Benoît Berenike Berit Bernard Bernd Bernhard Berta Bertram
    Bertrand Beth Bettina Beverly Bianca Bilal Birgit Birte Bjorn Björn Blaise Blake Blanca
    Blanche Blessing Bogdan Boris Boubacar Bozena Brad Bradley Brandon Branko Brenda Brent Brian
    Bridget Brigitta Brigitte Brit Britta Brooke Bruce Bruno Bryan Bryce Burkhard Caitlin Caleb
    Callum Calvin Cameron Camila Camilla Camille Candice Caoimhe Caren Carina Carl Carla Carlo
    Carlos Carlotta Carmela Carmen Carol Carola Carole Carolin Carolina Caroline Carolyn Carrie
    Carsten Casey Casimir Caspar Cassandra Catalina Cathal Catherina Catherine Cathy Catriona
    Cecil Cecile Cécile Cecilia Cédric Cedric Celeste Célestin Celia Célia Celina Céline Cem
    Cemal Cesar César Chad Chaim Chantal Charlène Charles Charlie Charlotte Cheikh Chen Cheryl
    Chiara Chidi Chika Chinedu Chioma Chloé Chloe Chris Christa Christel Christelle Christian
    Christiane Christina Christine Christof Christoph Christophe Christopher Cindy Claas Claire
    Clara Clarence Clarisse Claude Claudette Claudia Claudio Claudius Claus Clémence Clemens
    Clément Clémentine Cleo Clifford Clive Coleen Colette Colin Connie Connor Conny Constance
    Constantin Constanze Coralie Corentin Corey Corina Corinne Cornelia Cosima Craig Cristian
    Cristiano Cristina Curtis Cynthia Cyril Cyrille Cyrus Dagmar Dagobert Daisuke Dalia Damian
    Damien Damir Damon Dan Dana Danica Daniel Daniela Daniele Danielle Danijel Danilo Danny
    Daphne Dara Daria Dariush Dariusz Darko Darren Darya Dave David Davide Davina Deanna Debbie
    Deborah Debra Deepa Deepak Deirdre Dejan Dele Della Delphine Demetrius Denis Denise Deniz
    Dennis Derek Dermot Derya Désirée Desiree Desmond Devon Diana Diane Didier Diego Dieter
    Dietmar Dietrich Dilara Dilek Dimitri Dimitrios Dina Dinesh Dino Dirk Djamila Dmitry Dmytro
    Dolores Domenico Domingo Dominik Dominika Dominique Donald Donna Dora Doreen Dorian Doris
    Dorota Dorothea Dorothée Dorothy Doug Douglas Dragan Duc Duncan Dusan Dwayne Dylan Eckart
    Eckhard Ed Eda Eddie Edgar Edith Edmond Edmund Eduard Eduardo Edward Edwige Edwin Efua Egon
    Eike Eileen Eilidh Elaine Eleanor Elena Eleni Eleonora Éléonore Elfriede Elias Élie Elif
    Eline Eliot Eliott Elisa Elisabeth Elise Élise Eliza Elizabeth Elke Ella Ellen Ellie Elliot
    Elliott Elodie Élodie Eloise Éloïse Elsa Elsbeth Else Elton Elvira Elvis Emanuel Emanuela
    Emeka Emil Émile Emilia Emilie Émilie Emilio Emily Emine Emma Emmanuel Emmanuelle Emmett
    Emre Enid Enrico Enrique Ercan Erdem Erhard Eric Éric Erica Erich Erik Erika Erin Ernestine
    Ernesto Errol Erwin Esra Esteban Estéban Estelle Esther Ethan Étienne Etienne Eugen Eugène
    Eugene Eugenia Eugénie Eunice Eva Evan Evangeline Evelyn Evgeni Ewa Ewan Ezra Fabian Fabien
    Fabienne Fabio Fabrice Fadi Faisal Farah Farhan Farid Farida Fatima Fatma Fatou Fatoumata
    Federica Federico Felice Felicia Felicitas Feliks Félix Felix Ferdinand Fergus Ferhat
    Fernand Fernanda Fernande Fernando Filip Filippo Finn Fiona Flavia Flavio Florent Florentine
    Florian Florin Folake Frances Francesca Francesco Francine Francis Francisca Francisco
    Franck Franco François Françoise Frank Franka Franz Franziska Fred Freda Freddie Frederic
    Frédéric Frederick Frederik Frederike Freya Frida Frieda Friederike Friedrich Fritz Fumiko
    Gabriel Gabriele Gaby Gaël Gaëlle Gaëtan Gail Ganesh Garance Gareth Gary Gaspard Gaston
    Gavin Gemma Geneviève Geoff Geoffrey Georg George Georges Gerald Géraldine Geraldine Gérard
    Gerd Gerda Gerhard Gerhild Germaine Gero Gerold Gerrit Gertrud Gertrude Gianluca Gianna
    Gideon Gilbert Gilberte Gilles Gillian Gina Ginette Gino Giorgio Giovanna Giovanni Gisela
    Gisèle Giulia Giuseppe Gizem Gladys Glen Glenda Glenn Gloria Goran Gordon Gottfried Götz
    Grace Graham Grazyna Greg Grégoire Grégory Gregory Greta Gretchen Grete Grzegorz Gudrun
    Guido Guilherme Guillaume Guillermo Gülay Gülsen Gunnar Günter Günther Gurpreet Gustav
    Gustave Gwen Gwendal Gwendoline Gwyneth Hadi Hajo Hakan Hakeem Haley Halil Halima Hamid
    Hamza Hana Hanh Hanna Hannah Hanne Hannes Hanno Hans Hans-Peter Harald Harpreet Harry
    Hartmut Haruki Haruto Harvey Hasan Hassan Hatice Hauke Hazel Heather Hector Hedda Heidi
    Heike Heiko Heiner Heinrich Heinz Helen Helena Hélène Helga Helge Hella Helmut Hendrik
    Henning Henri Henriette Henrik Henrike Henry Herbert Hermann Hermine Hermione Herta Hervé
    Hilary Hilda Hilde Hildegard Hilmar Hiroko Hiroshi Hoang Holger Horst Hortense Howard Hubert
    Hugh Hugo Hugues Humphrey Hüseyin Ian Ibrahim Ibrahima Ida Ieuan Ifeoma Ignacio Igor Ilham
    Ilka Ilona Ilse Ilya Imane Imran Ina Inès Inge Ingeborg Ingmar Ingo Ingrid Inka Ioana
    Ioannis Iona Irena Irene Irina Iris Irma Irving Isa Isaac Isabel Isabell Isabella Isabelle
    Isadora Isaiah Ishaan Ismael Ismail İsmail Isolde István Itai Ivan Ivana Ivo Iwona Jacek
    Jacinta Jack Jackie Jaclyn Jacob Jacqueline Jacques Jade Jaime Jakob Jakub Jalal Jamal James
    Jamie Jamila Jan Jana Jane Janek Janet Janina Janine Jannis Janusz Jared Jarek Jaroslav
    Jasmin Jasmina Jasmine Jason Jasper Jaspreet Jaume Javier Jay Jayden Jean Jean-Claude
    Jean-Luc Jean-Marc Jean-Marie Jean-Michel Jean-Paul Jean-Philippe Jean-Pierre Jeanne
    Jeannette Jeannine Jedidiah Jeff Jelena Jenna Jenni Jennifer Jenny Jens Jeremiah Jérémie
    Jérémy Jeremy Jérôme Jerome Jerry Jerzy Jess Jessica Jessie Jesús Jihane Jill Jim Jimmy Jin
    Jing Jiri Jisoo Jitka Jo Joachim Joan Joanna João Joao Joaquin Joceline Jocelyn Jocelyne
    Jochen Jody Joe Joël Joel Joëlle Joey Johan Johann Johanna Johannes John Johnny Jolanda
    Jolene Jonas Jonathan Jordan Jörg Jorge Jörn José Josef Josefine Joseph Joséphine Josephine
    Josette Josh Joshua Josiane Josie Josip Jost Jovana Joyce Juan Juanita Jude Judith Jules
    Julia Julian Juliana Juliane Julianna Julie Julien Juliet Juliette Julio Julius Juliusz Jun
    Junior Jürgen Justin Justine Justus Jutta Kaan Kadir Kai Kaitlyn Kamal Kamau Kamil Kamila
    Kaori Kara Karen Karim Karima Karin Karina Karine Karl Karla Karoline Karsten Kaspar Kasper
    Katarina Katarzyna Kate Kateryna Katharina Katherine Kathi Kathleen Kathrin Kathrine Kathy
    Katie Katja Katrin Katya Kavita Kayla Kazimir Kazuko Keiko Keisha Keith Kelly Kemal Ken
    Kenji Kenneth Kenza Kerem Kerry Kerstin Kev Kevin Khadija Khaled Khalid Kiara Kieran Kilian
    Kim Kirsten Kirsty Kjell Klara Klaus Klemens Knut Kofi Kolja Konrad Konstantin Konstanze
    Korbinian Kordula Kourosh Kris Krista Kristen Kristian Kristin Kristina Kristof Krystyna
    Krzysztof Kumar Kunal Kurt Kwabena Kwaku Kwesi Kyle Kyoko Kyra Ladislav Laetitia Laila
    Lakshmi Lamar Lana Lance Lara Larissa Larry Lars Lasse Latifa Latoya Laura Laure Lauren
    Laurence Laurent Lauri Laurie Laurin Lawrence Layla Lea Léa Leah Leander Leandro Leanne Leif
    Leïla Leila Lena Lenka Lenny Lenore Léo Leo Leon Leonard Leonardo Leonhard Leonid Léonie
    Leonie Leonora Léopold Leopold Lerato Leroy Lesley Leslie Leszek Leticia Lev Levi Levin
    Lewis Leyla Lia Liam Lidia Liesbeth Liesel Lilian Liliana Liliane Lilli Lillian Lilly Lily
    Lina Linda Linh Linus Lionel Lisa Lisbeth Lise Liselotte Lisette Livia Liz Ljubica Logan
    Lola Lorcan Loredana Lorena Lorenzo Loretta Lori Lorna Lorraine Lothar Lotte Lou Louane
    Louis Louisa Louise Luana Luc Luca Lucas Lucie Lucien Lucienne Lucinda Lucy Ludger Ludmila
    Ludovic Ludwig Luigi Luis Luís Luisa Luise Luiz Luka Lukas Lukasz Luke Luna Lutz Lydia Lydie
    Lyle Lynn Lynne Mabel Maciej Maddalena Madeleine Madison Mads Magali Magda Magdalena
    Magdalene Magnus Mahmoud Maik Maike Maja Malcolm Maleen Malek Malgorzata Malik Malika Mandy
    Manfred Manoel Manoj Manon Manpreet Manuel Manuela Mara Marc Marcel Marcela Marcelle Marcelo
    Marcin Marco Marcus Marek Maren Marene Margaret Margareta Margarete Margarethe Margarita
    Margaux Margherita Margit Margitta Margot Margret Marguerite Maria Mariam Mariama Mariana
    Marianna Marianne Marie Marie-Claire Marie-Louise Marie-Thérèse Mariella Marielle Marietta
    Marija Marijke Marilyn Marina Marine Mario Marion Marisa Marissa Maritta Marius Marjorie
    Mark Marko Markus Marlene Marlène Marlies Marlon Marta Marten Martha Marthe Martin Martina
    Martine Marvin Mary Maryam Maryse Masako Massimo Mateo Mateusz Mathias Mathieu Mathilda
    Mathilde Matilda Matteo Matthäus Matthew Matthias Matthieu Maud Maude Maureen Maurice
    Mauricio Maurizio Max Maxence Maxime Maximilian Maximiliane Maxine Maya Mayumi Mechthild
    Meera Megan Mehdi Mehmet Mei Meike Meinhard Mel Melanie Mélanie Melina Melinda Melissa
    Melody Merle Merten Meryem Mette Mia Michał Micha Michael Michaela Michal Michel Michèle
    Michelle Mick Mickaël Miguel Mihai Mika Mikael Mike Mikhail Mila Milan Milana Mildred Milena
    Miles Milica Milo Milos Mina Mingyu Minh Minjun Mira Miranda Miriam Mirjam Mirko Miroslav
    Mitch Mohamad Mohamed Mohammad Mohammed Mohan Moira Molly Mona Monica Monika Monique Morgan
    Moritz Morten Moses Moshe Moussa Muhammad Muhammed Murat Muriel Murielle Mustafa Mwangi
    Myriam Myrtle Nabil Nadia Nadine Nadir Nadja Naima Naïma Najib Nancy Nanette Naomi Narges
    Nasreen Nasser Nastasia Natalia Natalie Natalya Natascha Natasha Nathalie Nathan Nathanael
    Nathaniel Nawal Neal Ned Neda Neha Neil Nell Nelly Nelson Nevin Nia Niall Nicholas Nick Nico
    Nicola Nicolas Nicole Nicoletta Nicolette Niels Nigel Nika Niki Nikita Niklas Nikola Nikolai
    Nikolas Nikolaus Nils Nima Nina Nino Nisha Njeri Noah Noam Noel Noelle Noemi Noémie Nolan
    Nomsa Noor Nora Norbert Noreen Norma Norman Nour Nuno Nuray Nuria Obinna Octavia Octavio
    Odile Odin Oksana Olaf Ole Oleg Oleksandr Olena Olga Oliver Olivia Olivier Ollie Oluwaseun
    Omar Ömer Ondrej Ophelia Ophélie Orla Orlando Orson Oscar Oskar Osman Osvaldo Oswald Otieno
    Otmar Otto Oumar Ousmane Owen Özge Özlem Pablo Paloma Pamela Paola Paolo Parisa Pascal
    Pascale Patience Patrice Patricia Patrick Patrizia Patryk Patsy Paul Paula Paulette Paulina
    Pauline Paulo Pavel Pawel Pedro Peggy Penelope Percival Percy Perry Pete Peter Petr Petra
    Phil Philip Philipp Philippa Philippe Philippine Phoebe Phuong Phyllis Pia Pierre Pierrette
    Pierrick Pieter Pilar Piotr Pooja Poppy Prakash Preston Priscilla Quentin Quinn Rabea Rachel
    Radek Rafał Rafael Rafaela Rafiq Rahel Rahul Raimund Rainer Raj Rajesh Ralf Ralph Ramesh
    Ramon Ramón Ramona Randall Randy Rania Raoul Raphael Raphaël Raquel Rashid Rasmus Raúl Ravi
    Ravindra Raya Rayan Raymond Raymonde Rebecca Reece Reem Regina Régine Regine Régis Reiner
    Reinhard Reinhild Reinhold Remi Rémi Rémy Renata Renate Renato Renaud René Reto Reza Rhys
    Ricarda Ricardo Riccardo Richard Rick Ricky Rieke Riley Rina Rino Rita Rivka Riya Robert
    Roberta Roberto Robin Rocco Rodney Rodolfo Rodrigo Rodrigue Roger Rohit Roland Rolf Romain
    Roman Romana Romane Romeo Romuald Romy Ron Ronald Ronny Rory Rosa Rosalie Rosalind Rosanna
    Roseline Rosemarie Rosemary Rosie Roslyn Ross Rowan Roxana Roxane Roy Ruben Rüdiger Rudolf
    Rufus Rui Rukhsana Rupert Ruprecht Ruslan Russell Ruth Ryan Sabina Sabine Sabrina Sadia Saïd
    Salah Salim Sally Salma Salomé Salvador Salvatore Sam Samantha Samara Sami Samir Samira
    Samuel Sander Sandra Sandrine Sandro Sanja Sanjay Santiago Saoirse Sara Sara-Lena Sarah
    Sascha Saskia Saverio Scott Seamus Sean Sebastian Sébastien Sékou Selim Selin Selina Selma
    Semra Seojun Serena Serge Sergei Sergej Sergio Serkan Sevda Séverin Séverine Shabnam
    Shanelle Shankar Shannon Sharon Shawn Sheila Shelley Shelly Sherry Shira Shirin Shirley
    Shreya Sibylle Sid Sidney Sidonie Siegfried Sieglinde Siegrid Sienna Sigmund Sigrid Silas
    Silke Silvana Silvester Silvia Silvio Silviu Simon Simone Sina Sinéad Siobhán Sipho Siv
    Slavica Slavko Slobodan Sneha Snezana Sofia Sofie Solange Sonal Sonia Sonja Sophia Sophie
    Sören Sota Soyeon Spencer Søren Stacey Stacy Stan Stanislas Stanislaus Stanislav Stanley
    Stefan Stefanie Steffen Steffi Stella Stephan Stéphan Stéphane Stéphanie Stephanie Stephen
    Steve Steven Stewart Stine Stuart Subhash Sue-Ellen Suleiman Süleyman Suman Sunil Sunita
    Suresh Susan Susana Susann Susanne Susi Suzanne Sven Svenja Svetlana Sybille Sydney Sylvain
    Sylvester Sylvette Sylvia Sylviane Sylvie Szymon Tabea Tadeusz Tahir Tahira Takashi Talia
    Tamara Tamika Tania Tanja Tanya Tara Tarek Tariq Tatiana Tatjana Taylor Ted Terence Teresa
    Terry Tess Tessa Tetiana Thabo Thaddeus Thanh Thea Théo Theo Theodor Theodora Théodora
    Théodore Theodore Theodoros Theresa Thérèse Thibaud Thierry Thomas Thomasina Thorben
    Thorsten Tiago Tiana Tiffany Tilda Tilman Tilo Tim Timo Timothée Timothy Timur Tina Tiphaine
    Tobiah Tobias Toby Todd Tom Tomás Tomas Tomasz Tomoko Toni Tonia Tony Torben Torge Torsten
    Tracey Tracy Travis Trevor Trisha Tristan Trudy Tuan Tunde Tyler Tyrone Udo Ulf Uli Ulla
    Ulrich Ulrike Urs Ursel Ursula Ute Utz Uwe Valentin Valentina Valentine Valeria Valerie
    Valérie Valery Valter Vanessa Vanya Vasile Vasili Vaughn Veit Velma Vera Verena Verna Vernon
    Veronica Veronika Véronique Vicente Vicki Vicky Victor Victoria Victorine Vihaan Vijay
    Vikram Viktor Vilma Vince Vincent Vincenzo Viola Violet Violetta Virginia Virginie Vitaly
    Vittoria Vivian Viviane Vivien Vivienne Vlad Vladimir Vladislav Volker Volkmar Volodymyr
    Wade Waldemar Walid Wallace Walter Waltraud Wanda Wanjiru Wassim Wayne Wei Wendelin Wendy
    Wenzel Werner Wesley Whitney Wilbur Wilfred Wilfried Wilhelm Wilhelmine Willi William Willy
    Wilma Winfried Winifred Winnie Winston Wolf-Dieter Wolfgang Wolfram Wulf Xavier Xenia
    Xiaoming Xin Yael Yann Yannick Yara Yasmin Yasmina Yasmine Yassin Yassine Yaw Yewande
    Yolanda Yolande Yoshiko Youssef Yui Yuki Yulia Yunus Yuri Yussuf Yuto Yves Yvette Yvonne
    Zachary Zahra Zainab Zanele Zara Zdenek Zehra Zeynep Zlatan Zoé Zoe Zofia Zoltán Zoltan Zora
    Zubair Zuzana Zygmunt
    """
)
"""Common given names."""

SURNAMES = _words(
    """
    Abbott Abdi Adams Adeyemi Ahmad Ahmadi Ahmed Akhtar Aksoy Albrecht Ali Allen Almeida Alvarez
    Álvarez Anderson Andersson Arnaud Arnold Arslan Asante Aubert Aubry Aydin Aydın Bailey Baker
    Balogun Banda Banerjee Barbier Barbieri Barker Barnes Bartels Barthel Barton Bauer Baumann
    Beck Becker Beckmann Begum Bell Bennett Benoit Benoît Berger Bergmann Bernard Bernhardt
    Bertin Bertrand Besson Bhatt Bianchi Blanc Blanchard Boateng Böhm Bondarenko Bonnet Bose
    Böttcher Boucher Bouvier Boyd Boyer Bradley Brandt Braun Breton Brooks Brown Brunet Bryant
    Bühler Burke Burns Busch Butler Campbell Carlier Caron Carpentier Carr Carroll Carter
    Carvalho Castillo Celik Çelik Chapman Charpentier Chatterjee Chen Cheng Chevalier Choi
    Chopra Christensen Chukwu Cissé Clark Clarke Clément Clement Cohen Coleman Colin Collet
    Collins Colombo Conteh Cook Cooke Cooper Coulibaly Cousin Cox Crawford Cruz Cunningham
    Dalton Daniel David Davidson Davies Davis Dawson Delaunay Delgado Delmas Dembélé Desai
    Deschamps Diallo Díaz Diaz Dietrich Diop Dixon Dlamini Dogan Doğan Dubois Dufour Dumont Dunn
    Dupont Dupuis Dupuy Durand Duval Dvořák Ebert Eckert Edwards Ellis Engel Erdogan Erdoğan
    Ernst Esposito Etienne Evans Eze Fabre Faure Fernandes Fernandez Fernández Ferrari Ferreira
    Fiedler Fischer Fisher Fitzgerald Fleming Fletcher Fleury Fontaine Förster Forster Foster
    Fournier François Frank Franke Franz Fraser Freeman Friedman Friedrich Fritz Fuchs Gaillard
    Gallagher Garcia Garnier Gauthier Gebhardt Geiger Georgiou Gerber Gibson Gilbert Girard
    Giraud Goldstein Gomes Gómez Gomez Gonzales González Gonzalez Goodwin Gordon Götz Graf
    Graham Gray Green Greene Griffiths Gross Gruber Guerin Guérin Gueye Guillaume Guillot
    Günther Gunther Gupta Gutierrez Haas Hahn Hall Hamilton Hammond Hansen Hanson Harper Harris
    Harrison Hartmann Harvey Hashemi Hassan Hayes Heß Heinrich Heinz Heller Henderson Hennig
    Henning Henry Hermann Hernández Hernandez Herrmann Hesse Hicks Higgins Hill Hinz Hirsch
    Hoang Hofer Hoffmann Hofmann Holmes Holt Hopkins Horn Horvat Horvath Hosseini Howard Huber
    Hubert Hudson Huet Hughes Hussain Hussein Ibrahim Ito Ivanov Ivanova Iyer Jackson Jacob
    Jacobs Jacquet Jäger Jahn James Jansen Janssen Jenkins Jensen Jiménez Johansson John Johnson
    Johnston Joly Jones Joseph Joshi Julien Jung Kahn Kaiser Kamara Kaplan Kapoor Karimi
    Karlsson Kaufmann Keita Keller Kelley Kelly Kennedy Khan Khumalo Kim King Kirchner Klaus
    Kılıç Klein Knoll Kobayashi Koch Köhler Konaté König Korhonen Kovács Kovalenko Kowalska
    Kowalski Kramer Krämer Krauß Kraus Krause Krüger Kruse Kühn Kuhn Kumar Kunz Kuznetsov
    Lacroix Lambert Lang Lange Langer Larsen Laurence Laurent Lawrence Lawson Lebrun Leclerc
    Lecomte Lee Lefebvre Lefevre Legrand Legros Lehmann Lemaire Lemoine Leroy Levi Lewis Lindner
    Lindqvist Liu Lloyd Löffler Lombardi Lopez Lorenz Lucas Ludwig Lynch MacDonald Mahmoud Maier
    Maillard Malhotra Malik Mallet Marchal Marchand Marino Marquez Marshall Martin Martínez
    Martinez Martins Marty Marx Mason Masson Mathieu Mayer McCarthy McDonald McKenzie McLean
    Mehta Meier Ménard Menard Mendoza Menon Mensah Mercier Merz Meunier Meyer Michaud Michel
    Miller Mitchell Mizrahi Mohamed Möller Moore Morales Moreau Morel Moreno Moretti Morgan
    Morin Morris Morrison Moser Moulin Moyo Mukherjee Müller Murphy Murray Nagel Nagy Nair
    Nakagawa Navarro Ndiaye Nelson Neumann Newman Nguyen Nicolas Nielsen Nikolaidis Nilsson
    Nkosi Noack Novak Novotny Nowak Nwosu O'Brien O'Connor O'Neill O'Reilly O'Sullivan Okafor
    Oliveira Oliver Olivier Olsen Ortiz Otto Owusu Özdemir Ozturk Öztürk Palmer Papadopoulos
    Pape Parker Parsons Patel Patterson Payne Pearce Pearson Pereira Perez Pérez Perret Perrin
    Perry Peters Petersen Peterson Petit Petrov Pfeiffer Philippe Phillips Picard Pillai Pohl
    Poirier Poole Pope Popescu Popov Porter Powell Prévost Price Qureshi Rahman Rajan Ramírez
    Ramirez Ramos Rao Raymond Reddy Reed Reinhardt Renard Renaud Reuter Reyes Reynolds Rezaei
    Ribeiro Ricci Richard Richards Richardson Richter Riedel Rivera Rivière Robert Roberts
    Robertson Robin Robinson Roche Rodrigues Rodriguez Rodríguez Roger Rogers Rolland Romero
    Rosenberg Ross Rossi Roth Rousseau Roussel Roux Roy Ruf Ruiz Russell Ryan Sahin Şahin
    Salazar Samuel Sánchez Sanchez Sanders Santos Sato Sauer Saunders Schäfer Schlüter Schmid
    Schmidt Schmidtke Schmitt Schmitz Schneider Schneidewind Scholz Schreiber Schreiner Schröder
    Schröter Schubert Schulte Schultz Schulz Schulze Schumacher Schumann Schuster Schwab Schwarz
    Schwarze Scott Seidel Sesay Shah Sharma Shaw Shevchenko Siddiqui Silva Silvester Simon
    Simpson Singh Smirnov Smith Sokolov Sommer Soto Sousa Spencer Stein Steiner Stephan Stevens
    Stewart Strauß Sullivan Suzuki Svoboda Szabó Takahashi Tanaka Taylor Teixeira Tessier Thiel
    Thomas Thompson Thomsen Torres Tóth Touré Toussaint Tran Traoré Tucker Turner Ullrich Ulrich
    Unger Vargas Vasseur Vidal Vincent Virtanen Vogel Vogt Voigt Volkov Wagner Walker Wallace
    Walsh Walter Walz Wang Ward Watanabe Watson Webb Weber Wegner Weiß Weiler Weiss Wendt Werner
    White Wiese Wilhelm Wilkinson Williams Willis Wilson Winkler Winter Wirth Witte Wolf Wolff
    Wong Wood Wright Wu Yamamoto Yang Yavuz Yilmaz Yıldız Yılmaz Young Zhang Zhao Ziegler Zimmer
    Zimmermann
    """
)
"""Common surnames."""

ALSO_WORDS = _words(
    """
    Alva Ama Amal Amber Ariel Art Athena August Augustine Aurora Aurore Ava Bill Blake Blessing
    Brit Brooke Carmen Carolina Chase Claude Constance Constantin Dan Das Dawn Dean Diego Ed
    Efua Engel Ernst Faith Flore Florence France Frank Grace Guy Harvey Hazel Heather Holly Hope
    Ina Iris Isa Israel Ivy Jade Jasmin Jin Jo Jordan Joy Jun June Junior Kai Lance Laurin Leon
    Levi Logan Lorraine Luna Madison Mai Marine Mark Max May Melody Milan Miles Neda Nelson Noel
    Noël Odin Ole Orlando Paris Pascal Pat Patience Penny Petra Pilar Poppy Preston Ray Rich Rob
    Robin Roman Romeo Rosa Rose Ross Roy Ruby Salvador Santiago Sienna Sofia Stan Stella Sue
    Sydney Uli Urs Valentine Vernon Victoria Viola Violet Violetta Virginia Wade Wei Will Wolf
    Xin
    """
)
"""Given names that are often something else: alone they are no names."""

SMALL_WORDS = _words(
    """
    Adel Aimée Ali Alma Ange Anise Art Aurelia Ben Bernard Berta Björn Bob Carol Carole Chance
    Claire Clemens Clément Cécile Dana Denis Dolores Don Désirée Elle Ellen Else Elton Ernestine
    Eva Felix Fernande Florentine Franc Franka Gay Gene Germaine Gero Grete Honor Ida Ike Inge
    Jack Jacket Jay Jean Jeanne Jeremiah Jerry Jim John Jules Juste Justine Karin Kim Kit Lara
    Lasse Lea Leah Lee Lena Leo Lin Linda Linus Lise Lola Lou Luc Luca Luce Lucie Manuel Mara
    Marc Marco Maren Margarita Margot Marie Marin Marion Martin Martine Marty Mary Mathilde Matt
    Mel Merle Mia Mick Mike Mina Modeste Mona Morgen Nick Nico Nicole Nina Norma Octavo Olga
    Oscar Otto Paloma Paul Pete Pierre Prudence Reine Remy Rick Rita Romy Régis Rémi Sage Sally
    Sam Sandy Sascha Serge Simon Solange Ted Teri Terry Tilda Tim Timo Tina Tom Toni Tony Ute
    Vera Verona Victoire Victor Vince Wanda Wayne Wolf Zora
    """
)
"""Those that are often something else in small letters."""

NO_NAMES = _words(
    """
    a about account account's address after all am an and any as ask at because before both but
    by can card charged charge code contact could customer customers date day dear deliver
    delivery desk did do driver during each every everything flat for friday from good guests
    had has have he hello help her here hi his how however i i'd i'll i'm i've if in is it it's
    january february march april june july august september october november december kind last
    later licence license log mail may maybe meet mobile monday mr mrs ms my name neighbour
    neighbor never new next no not note now number of on once one or order our passport patient
    phone please po reached regards request room saturday seit she ship since so some somebody
    someone speak spoke ssn still sunday tax tell thank thanks that the their then there these
    they this those thursday to today tomorrow tuesday two ticket unfortunately until up update
    version visa visit we wednesday what when where which while who whose why will wire with
    would write yes yesterday you your blocked according warmest best sincerely aber ab alle
    alles als also am an auch auf aus ausweis bei bis bitte bote da dann das dass dein dem den
    der des deshalb die dies diese dieser doch durch ein eine einem einen einer er es firma frau
    freitag für gestern guten gute grüße grüßen hallo hat herr herrn heute hier ich ihr ihre
    ihrem ihren im in ist ja jetzt kann karte kein keine konto kontakt kunde kunden kundin laut
    liebe lieber mann meine mein meinem meiner mich mir mit mitarbeiter mittwoch montag morgen
    mobil nach nein nicht noch nun nur oder ohne paket patient patientin sehr senden sie sind
    samstag seit selbst so sonntag sowohl tag tel telefon treffpunkt über um und uns unser
    unsere unter viele vielen von vom vor war warum was weil wenn wer wie wir wo zu zum zur zwei
    donnerstag dienstag januar februar märz mai juni juli oktober dezember schreiben rufen
    fragen neue überweisen führerschein personalausweis steuernummer steuer rechnung vertrag
    anmeldung bestellung à ah alors après au aucun aujourd'hui aussi autre aux avant avec
    bonjour bonsoir c'est ça car carte ce ceci cela celle celui ces cet cette chaque cher chère
    client cliente combien comme commande comment contact cordialement d'accord dans de débité
    demain demandez depuis des deux dimanche donc du elle elles en encore envoyez est et ils il
    ici j'ai jamais je jeudi l'adresse la le les leur lorsque lundi ma madame mademoiselle mais
    mardi merci mercredi mes mme mlle mon monsieur ne ni non nos notre nous nouvelle numéro on
    ou où par parce pas passeport permis personne plus portable pour pourquoi puis quand que
    quel quelle qui rendez-vous sa samedi sans ses selon si son sont sous sur ta tes toujours
    tous tout très tu un une vendredi veuillez virez vos votre vous voici voilà écrivez échec
    avril août février janvier juillet juin mars novembre octobre septembre décembre me m m. vg
    lg mfg best yours caller contact dr prof prof. dr. mr. mrs. sir lady miss fräulein familie
    monsieur iban bic usb pdf id dob ein tin cvv support sales legal accounting billing
    marketing finance engineering nino nhs easter christmas invoice delivery weihnachten ostern
    noël pâques facture livraison lieferung namen
    """
)
"""Words that are no names, also where they are capitalised; in lower case."""

OF_OTHERS = _words(
    """
    abbey academy ag airlines airport airways akademie amt apple association avenue award awards
    bad bahn bahnhof bank banque bay beach black blue bridge brothers brücke bundesbank bureau
    café care castle cathédrale center central centre church château city club co college
    commerce commission committee company corp corporation council court cup department deutsche
    direction dom east edition editions estate express festival fifth fire first flat forest
    forêt foundation france galaxy gallery games gare gasse general gmbh golden google grand
    great green group gruppe hall haus high holding hospital hotel house hôtel inc institut
    institute insurance international island kirche klinik lac lake las limited line lloyd los
    ltd lycée mairie maison market media medical microsoft ministry mont motors mount museum
    musée national new north office oil old parc park partner pesto plan platz plaza police pont
    port post premier premium press prize publishing records red republic restaurant river royal
    sa saint samsung san sankt santa sarl schloss school schule service services société
    software solutions south sparkasse square st stade stadt station stiftung store straße
    street studio suite support systems tea team technologies telekom theater theatre tower
    trail trust turm union unit united university universität université valley verein verlag
    versicherung volksbank west world york école
    """
)
"""Words in the names of organisations, places and products; in lower case."""
