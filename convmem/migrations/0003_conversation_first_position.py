from django.db import migrations, models
from django.db.models import F, Min


def count_from_the_rows(apps, schema_editor):
    """Cleared conversations do not begin at position 1, the default."""
    objects = apps.get_model("convmem", "Conversation").objects
    cleared = objects.using(schema_editor.connection.alias).exclude(
        message_count=F("last_position")
    )
    for row in cleared.annotate(oldest=Min("messages__position")).iterator():
        first = row.last_position + 1 if row.oldest is None else row.oldest
        cleared.filter(pk=row.pk).update(first_position=first)


class Migration(migrations.Migration):

    dependencies = [
        ("convmem", "0002_run"),
    ]

    operations = [
        migrations.AddField(
            model_name="conversation",
            name="first_position",
            field=models.BigIntegerField(default=1, editable=False),
        ),
        migrations.RunPython(count_from_the_rows, migrations.RunPython.noop),
    ]
