"""Phrases that abstain and phrases that answer, as models write them, with those that are taken for the other kind."""

from ragguard.metrics.answers import is_abstention

ABSTENTIONS = """\
Based on the given documents, this cannot be determined.
N/A
n/a.
NA
None
I don't know.
I'm not able to answer that.
I'm not able to determine this from the passages.
I am not able to find that information.
The answer is unknown.
The answer is not available.
The answer is not provided in the context.
This information is not available.
This information isn't available in the documents.
That information is not in the provided text.
That is not stated.
This is not specified in the passages.
This cannot be answered from the context.
This question cannot be answered with the given information.
It cannot be determined from the passages.
It can't be said.
It isn't possible to tell from the documents.
It's not possible to say.
The documents don't say.
The passages do not contain this information.
The context doesn't mention it.
The text says nothing about that.
The retrieved passages do not include the answer.
None of the passages mention it.
None of the documents answer the question.
None of the given passages contain the answer.
Neither passage mentions it.
No passage mentions it.
No document states this.
No information available.
No information was found.
No answer found.
No answer can be given.
No data.
No details are given about this.
Not enough information.
Not enough context to answer.
Not mentioned.
Not stated in the text.
Not available.
Not found.
Not known.
Not provided
Not given.
Insufficient information.
Insufficient context to answer the question.
There is insufficient information to answer.
There is no information about this in the passages.
There's no way to know from this.
There is no way to tell.
Unable to determine.
Unfortunately, the documents do not mention this.
I'm sorry, but I can't find the answer in the documents.
Sorry, I don't have that information.
I could not find any information about this.
I couldn't find it.
I can't tell from the passages.
I have no way of knowing.
I haven't found anything about that.
I cannot determine this from the given context.
I do not have enough information to answer.
From the passages alone, it is not clear.
Based on the context, it is unclear.
Based on the provided information, I cannot answer.
Given the passages, the answer is not clear.
According to the passages, this is unknown.
The information needed is not in the passages.
The requested information is missing.
The passage doesn't specify who founded it.
It is not clear from the text.
It remains unclear.
It's not specified.
Can't say.
Cannot say for certain.
Hard to tell.
No idea.
No clue.
I have no clue.
Beats me.
Who knows?
?
-
unknown
Unspecified
Undisclosed
no-response
I would need more information to answer that.
More information is needed.
I need more context.
As an AI, I cannot answer this.
I lack the information.
My sources do not cover that.
The provided passages do not state where she was born.
I'm unable to answer this question from the context.
The documents provided don't contain an answer to this.
There is no mention of a founder in the text.
The founder's name is not given.
The year is not specified in the provided documents.
I can't determine the mayor from these passages.
It is not stated in the passages who founded the firm.
Her place of birth is not mentioned.
His profession remains unknown.
The context is silent on this.
The passages are silent about the founder.
I found nothing about this in the documents.
Nothing in the documents says who she married.
Nothing was found.
No results.
No relevant passages were found.
No matching information.
There isn't any information on that in the context.
There is not enough context to say.
Not enough details to answer this.
Insufficient data.
The given context is insufficient to answer.
The information is insufficient.
The passages provide insufficient information.
Cannot be determined from the given passages.
Can't be determined.
Undetermined.
Unclear.
Uncertain.
I'm not sure about that.
I am not certain who it is.
I really don't know.
I honestly don't know.
I do not know the answer to this question.
We do not have that information.
We can't tell from what is given.
You'd have to look that up.
I'd have to guess.
I would be guessing.
I prefer not to guess.
I must decline to answer.
I won't speculate.
I have no answer.
I have no data on this.
I have no record of that.
No record of this was found.
No such person is mentioned in the passages.
No such information is provided.
The answer can't be found in the passages.
The answer does not appear in the documents.
The question can't be answered from these documents.
The text fails to mention her spouse.
The articles make no reference to it.
The source does not specify a date.
Based on these passages, the answer remains unclear.
In the context there is no information about a mayor.
Given the documents, I am unable to say.
Sorry, the passages don't say.
Apologies, but I could not find this.
""".splitlines()
"""The phrases for which the lists of `ENGLISH` were made."""
FURTHER = """\
The passages provided do not reveal her employer.
I don't have access to that information.
I do not see the answer in the text.
The founder cannot be identified from the passages.
The birthplace could not be determined.
Her employer is not stated.
There is no record of the founder in these texts.
There are no details about her marriage.
It isn't stated.
It's unclear from the context.
It is uncertain who founded it.
That's not something the passages mention.
That detail is not provided.
This detail is missing from the documents.
The context lacks that information.
The documents offer no answer.
The sources disagree and do not settle it.
The provided text doesn't specify the year.
I am unable to determine the answer based on the given context.
I could not determine the answer.
I can't find that in the documents.
I can't give an answer.
I can't be sure.
I'm uncertain.
I have no information on that.
I haven't got enough information.
No information on this is available.
No information provided.
No mention of it.
No details.
Nothing relevant was retrieved.
Nothing about this is known.
None of the documents specify her spouse.
None of them say.
Neither document says.
Not specified in the context.
Not answerable from the passages.
Not enough evidence.
Not in the passages.
Not clear.
Answer not found.
Answer: unknown
Answer: not available
Unknown (not in the passages).
Unanswerable from the context.
Information not available.
Data not provided.
Insufficient evidence to say.
Impossible to determine.
It's impossible to know.
It is impossible to say from the passages.
Unfortunately, I don't know.
Unfortunately, that is not mentioned.
I'm afraid I don't know.
I'm sorry, I cannot help with that.
According to the context, it is not specified.
In the given passages, her birthplace is not mentioned.
From the context, I cannot tell.
Based on the retrieved documents, there is no answer.
The question is unanswerable.
""".splitlines()
"""Sixty phrases that were written after the lists were done: 39 of them were recognised then."""
ANSWERS = """\
I Don't Know How to Love Him
I Don't Know How She Does It
I Can't Get No Satisfaction
I Cannot Tell a Lie
No Country for Old Men
No Way Home
No Information Society
Unknown Pleasures
The Unknown Soldier
The Great Unknown
Not Fade Away
Nobody Knows
Who Knows Where the Time Goes?
Nothing Compares 2 U
None of the Above (a play by Jenny Lyn Bader)
No Doubt
Oslo
1929
Not Oslo, but Bergen.
It is not known when, but she was born in Oslo.
The founder is not mentioned in the first passage, but the second names Ada Berg.
I don't know for certain, but probably Oslo.
No, it was Ada Berg.
No.
Yes.
There is no mayor.
No one founded it; it was a merger.
Neither Oslo nor Bergen.
It cannot be divided by two.
The film was not released.
Not Available, a painting by Ada Berg
The data were not available until 1984.
In 1929; the month is not known.
N.A. Palm & Co.
NA Larsen
Na (sodium)
Nonesuch Records
Missing
The Missing
Unclear Physics
The number is unlisted.
Insufficient Funds (album)
Can't Say Goodbye
Hard to Say I'm Sorry
Don't Know Why
No Idea Records
Not Enough Mexicans
It Is Not Possible
I Have No Mouth, and I Must Scream
The passages name Ada Berg.
The Context of Things
She has no children.
It has no capital.
They cannot fly.
He could not swim.
It contains no lead.
Information Society
A Certain Trigger
More Information Than You Require
Not One Less
Unknown Mortal Orchestra
I Don't Want to Miss a Thing
I Can't Help Falling in Love
Cannot Buy My Soul
No Reply
No Surprises
There Is No Game
There Is Nothing Left to Lose
It's Hard to Be a Saint in the City
The Answer Is Blowin' in the Wind
Nothing Else Matters
Nothing to Declare
Insufficient Evidence (film)
None but the Brave
No Time to Die
No mayor; a council of seven governs it.
There was no second founder, only Ada Berg.
It was not Oslo but Bergen.
There is no sea; it lies in the mountains.
It does not have a king but a president.
Unknown to most, Ada Berg founded it.
I am not sure of the day, but it was in 1929.
The first passage does not say, but the second says 1929.
Not mentioned by name, he was her brother Olaf.
She did not marry.
They have no children.
He is not a judge but a weaver.
No one.
Nobody.
""".splitlines()
"""Answers that resemble an abstention, many of them titles of works."""


def test_abstentions_are_recognised_but_for_those_that_are_counted():
    missed = [phrase for phrase in ABSTENTIONS if not is_abstention(phrase)]
    assert missed == [
        "NA",  # sodium
        "None",  # an answer to "how many?"
        "The information needed is not in the passages.",
        "The requested information is missing.",
        "My sources do not cover that.",
    ]
    assert len(ABSTENTIONS) == 157


def test_further_abstentions_are_recognised_for_the_most_part():
    assert len(FURTHER) == 60
    assert sum(map(is_abstention, FURTHER)) >= 39


def test_answers_and_titles_are_no_abstentions_but_for_those_that_are_counted():
    taken = [phrase for phrase in ANSWERS if is_abstention(phrase)]
    assert taken == ["Nobody Knows", "Insufficient Evidence (film)"]
