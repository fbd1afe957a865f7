SELECT 100.00 * SUM(CASE WHEN i_data LIKE 'pr%' THEN ol_amount ELSE 0 END) / (1 + SUM(ol_amount)) AS promo_revenue
FROM item, lines WHERE ol_i_id = i_id AND ol_delivery_d >= '2017-09-01 00:00:00.000000'
  AND ol_delivery_d < '2017-10-01 00:00:00.000000'
