"""What people look at: pages with their templates and static files, and how tasks go on."""
