"""The database itself refuses to change or remove an audit entry."""

from django.db import migrations

REFUSE = """
CREATE FUNCTION journal_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END $$;
CREATE TRIGGER audit_entry_is_final BEFORE UPDATE OR DELETE ON journal_auditentry
    FOR EACH ROW EXECUTE FUNCTION journal_refuse_change();
CREATE TRIGGER audit_log_is_kept BEFORE TRUNCATE ON journal_auditentry
    FOR EACH STATEMENT EXECUTE FUNCTION journal_refuse_change();
"""
ALLOW = """
DROP TRIGGER audit_log_is_kept ON journal_auditentry;
DROP TRIGGER audit_entry_is_final ON journal_auditentry;
DROP FUNCTION journal_refuse_change();
"""


class Migration(migrations.Migration):
    dependencies = [("journal", "0001_initial")]
    operations = [migrations.RunSQL(REFUSE, ALLOW)]
